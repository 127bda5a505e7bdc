"""What the agent says of its node is what the API server shows, whoever else wrote there."""

from __future__ import annotations

from sharing.cluster.kind import GPU_NODES
from tests.support.agent_bench import node_bench


async def test_a_status_that_is_not_the_agents_last_word_is_written_again() -> None:
    """Also how an old word shows up that the agent's own watch had not brought yet."""
    async with node_bench("1xH100-80GB") as node:
        await node.start_agent()
        said = await node.until_served()
        other = said.model_copy(update={"driver_version": "1.2.3"})
        plain = other.model_dump(mode="json", by_alias=True, exclude_none=True)

        await node.client.patch(GPU_NODES, "n1", {"status": plain}, subresource="status")

        await node.until_status(lambda status: status.driver_version == "1.2.3")
        await node.until_status(lambda status: status == said)
