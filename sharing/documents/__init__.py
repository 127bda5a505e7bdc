"""YAML and JSON that people write, read strictly and as kubectl reads it.

A parser's own conveniences are traps here: a key that stands twice loses one value, an alias may
expand a small file into gigabytes, a tag may name any object, and an unquoted date becomes no
text. So documents are built from the parser's events, by one loop without recursion: values are
what JSON has (dict, list, str, int, float, bool, None), and a mistake names its line.

    reading  bytes → documents
    builder  YAML events → values
    scalar   what an unquoted word means
    objects  documents → Kubernetes objects
    folder   files of a folder
    writing  values → YAML
"""

from sharing.documents.folder import contents_hash, read_path
from sharing.documents.objects import KubeObject, objects_of
from sharing.documents.reading import MOST_BYTES, Document, read_documents, read_file
from sharing.documents.writing import write_documents

__all__ = [
    "MOST_BYTES",
    "Document",
    "KubeObject",
    "contents_hash",
    "objects_of",
    "read_documents",
    "read_file",
    "read_path",
    "write_documents",
]
