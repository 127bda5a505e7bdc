"""Creation, reading and replacing: the rules of apiserver's registry and ObjectMeta."""

from __future__ import annotations

import pytest

from tests.support.apiserver import PODS, Client, config_map, gpu_pod, pod

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_new_object_gets_uid_time_and_revision(api: Client) -> None:
    made = await api.made(MAPS, config_map("m"))
    metadata = made["metadata"]
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["namespace"] == "default"
    assert (await api.get(f"{MAPS}/m")).body == made


async def test_a_client_cannot_choose_system_fields(api: Client) -> None:
    wanted = config_map("m")
    wanted["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
    }
    metadata = (await api.made(MAPS, wanted))["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in metadata


async def test_a_revision_at_creation_is_refused(api: Client) -> None:
    """ErrResourceVersionSetOnCreate: so a copied manifest is noticed."""
    wanted = config_map("m")
    wanted["metadata"]["resourceVersion"] = "7"
    reply = await api.create(MAPS, wanted)
    assert reply.code == 500
    assert reply.body["message"] == "resourceVersion should not be set on objects to be created"


async def test_generate_name_adds_five_characters(api: Client) -> None:
    wanted = pod("x")
    wanted["metadata"] = {"generateName": "job-"}
    names = {(await api.made(PODS, wanted))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


async def test_a_taken_name_is_409_already_exists(api: Client) -> None:
    await api.made(MAPS, config_map("m"))
    reply = await api.create(MAPS, config_map("m"))
    assert (reply.code, reply.body["reason"]) == (409, "AlreadyExists")
    assert reply.body["message"] == 'configmaps "m" already exists'


async def test_an_absent_object_is_404_not_found(api: Client) -> None:
    reply = await api.get(f"{PODS}/nope")
    assert reply.code == 404
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "nope" not found',
        "reason": "NotFound",
        "details": {"name": "nope", "kind": "pods"},
        "code": 404,
    }


async def test_nothing_is_created_in_a_namespace_that_does_not_exist(api: Client) -> None:
    reply = await api.create("/api/v1/namespaces/nowhere/pods", pod())
    assert reply.code == 404
    assert reply.body["message"] == 'namespaces "nowhere" not found'


async def test_a_namespace_in_the_body_must_be_that_of_the_path(api: Client) -> None:
    wanted = pod()
    wanted["metadata"]["namespace"] = "kube-system"
    reply = await api.create(PODS, wanted)
    assert reply.code == 400
    assert "does not match the namespace sent on the request" in reply.body["message"]


@pytest.mark.parametrize("name", ["Upper", "-x", "a_b", "a" * 254, "a..b"])
async def test_a_name_must_be_a_dns_subdomain(api: Client, name: str) -> None:
    reply = await api.create(MAPS, config_map(name))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert reply.causes[0][0] == "metadata.name"


async def test_a_name_is_required(api: Client) -> None:
    wanted = config_map("m")
    wanted["metadata"] = {}
    reply = await api.create(MAPS, wanted)
    assert reply.code == 422
    assert "name or generateName is required" in reply.body["message"]


@pytest.mark.parametrize(
    "labels", [{"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"/a": "b"}, {"A.com_/x": "y"}]
)
async def test_labels_must_be_well_formed(api: Client, labels: dict[str, str]) -> None:
    wanted = config_map("m")
    wanted["metadata"]["labels"] = labels
    reply = await api.create(MAPS, wanted)
    assert reply.code == 422
    assert reply.causes[0][0] == "metadata.labels"


async def test_a_put_with_an_old_revision_is_a_conflict(api: Client) -> None:
    first = await api.made(MAPS, config_map("m"))
    assert (await api.patch(f"{MAPS}/m", {"data": {"b": "2"}})).code == 200
    first["data"]["c"] = "3"
    reply = await api.put(f"{MAPS}/m", first)
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in reply.body["message"]


async def test_a_put_without_a_revision_overwrites(api: Client) -> None:
    await api.made(MAPS, config_map("m"))
    reply = await api.put(f"{MAPS}/m", config_map("m", z="9"))
    assert (reply.code, reply.body["data"]) == (200, {"z": "9"})


async def test_a_put_of_another_uid_is_a_conflict(api: Client) -> None:
    made = await api.made(MAPS, config_map("m"))
    made["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000000"}
    reply = await api.put(f"{MAPS}/m", made)
    assert reply.code == 409
    assert "Precondition failed: UID" in reply.body["message"]


async def test_a_write_that_changes_nothing_keeps_the_revision(api: Client) -> None:
    made = await api.made(MAPS, config_map("m"))
    reply = await api.patch(f"{MAPS}/m", {"data": {"a": "1"}})
    assert reply.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_dry_run_answers_as_if_and_stores_nothing(api: Client) -> None:
    reply = await api.create(MAPS, config_map("m"), dryRun="All")
    assert reply.code == 201
    assert reply.body["metadata"]["uid"]
    assert (await api.get(f"{MAPS}/m")).code == 404


async def test_generation_counts_changes_of_the_spec_alone(api: Client) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    made = await api.made(path, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})
    assert made["metadata"]["generation"] == 1
    labelled = await api.patch(f"{path}/b", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    status = await api.patch(f"{path}/b/status", {"status": {"currentHealthy": 3}})
    assert status.body["metadata"]["generation"] == 1
    changed = await api.patch(f"{path}/b", {"spec": {"minAvailable": 2}})
    assert changed.body["metadata"]["generation"] == 2


async def test_status_is_written_through_its_subresource_alone(api: Client) -> None:
    await api.made(PODS, pod())
    ignored = await api.patch(f"{PODS}/p", {"status": {"phase": "Running"}})
    assert ignored.body["status"]["phase"] == "Pending"
    taken = await api.patch(
        f"{PODS}/p/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}}
    )
    assert taken.body["status"]["phase"] == "Running"
    assert "nodeName" not in taken.body["spec"]


async def test_labels_of_a_pod_can_be_written_through_its_status(api: Client) -> None:
    """Upstream's pod status strategy keeps labels and annotations; policies have to guard them."""
    await api.made(PODS, pod())
    reply = await api.patch(f"{PODS}/p/status", {"metadata": {"annotations": {"a": "b"}}})
    assert reply.body["metadata"]["annotations"] == {"a": "b"}


async def test_a_node_is_registered_with_its_status(api: Client) -> None:
    """The node strategy keeps status at creation: that is how kubelets register."""
    made = await api.made(
        "/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    )
    assert made["status"]["capacity"] == {"cpu": "4"}


async def test_unknown_fields_of_a_built_in_kind_fall_away_with_a_warning(api: Client) -> None:
    """Decoding into Go types drops them; fieldValidation decides who is told (default Warn)."""
    wanted = gpu_pod()
    wanted["spec"]["hostnme"] = "typo"
    warned = await api.create(PODS, wanted, dryRun="All")
    assert "hostnme" not in warned.body["spec"]
    assert warned.warnings == ['unknown field \\"spec.hostnme\\"']
    strict = await api.create(PODS, wanted, fieldValidation="Strict")
    assert strict.code == 400
    assert strict.body["message"].endswith('strict decoding error: unknown field "spec.hostnme"')
    silent = await api.create(PODS, wanted, fieldValidation="Ignore")
    assert (silent.code, silent.warnings) == (201, [])


async def test_a_value_of_a_wrong_json_type_is_a_bad_request(api: Client) -> None:
    wanted = pod()
    wanted["spec"]["containers"][0]["name"] = 5
    reply = await api.create(PODS, wanted)
    assert reply.code == 400
    assert (
        "json: cannot unmarshal number into Go struct field Container.spec.containers.name"
        " of type string" in reply.body["message"]
    )


async def test_null_is_the_same_as_absent(api: Client) -> None:
    wanted = pod()
    wanted["metadata"]["annotations"] = None
    wanted["spec"]["nodeSelector"] = None
    made = await api.made(PODS, wanted)
    assert "annotations" not in made["metadata"]
    assert "nodeSelector" not in made["spec"]


async def test_secrets_take_string_data(api: Client) -> None:
    path = "/api/v1/namespaces/default/secrets"
    made = await api.made(path, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert (made["data"], made["type"]) == ({"k": "dg=="}, "Opaque")
    assert "stringData" not in made


async def test_a_scale_changes_replicas(api: Client) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    await api.made(
        path,
        {
            "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
            },
        },
    )
    scale = (await api.get(f"{path}/d/scale")).body
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == (
        "Scale",
        1,
        "a=b",
    )
    assert (await api.patch(f"{path}/d/scale", {"spec": {"replicas": 3}})).body["spec"][
        "replicas"
    ] == 3
    assert (await api.get(f"{path}/d")).body["spec"]["replicas"] == 3
