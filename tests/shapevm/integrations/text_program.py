"""Search with another library over an encoder's file: `python text_program.py LIBRARY MODEL.svm`."""

from __future__ import annotations

import sys

import numpy as np

from shapevm import SentenceEncoder

TEXTS = ["the cat sat on the mat", "a red dog ran", "two green passage hill"]
QUERY = "dog ran"


def langchain(model: str) -> list[str]:
    from langchain_core.vectorstores import InMemoryVectorStore

    from shapevm.integrations.langchain import ShapevmEmbeddings

    store = InMemoryVectorStore(ShapevmEmbeddings(model))
    store.add_texts(TEXTS)
    return [found.page_content for found in store.similarity_search(QUERY, k=3)]


def llama_index(model: str) -> list[str]:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    from shapevm.integrations.llama_index import ShapevmEmbedding

    embedding = ShapevmEmbedding(model)
    index = VectorStoreIndex([TextNode(text=text) for text in TEXTS], embed_model=embedding)
    return [found.node.get_content() for found in index.as_retriever(similarity_top_k=3).retrieve(QUERY)]


def chroma(model: str) -> list[str]:
    import chromadb

    from shapevm.integrations.chroma import ShapevmEmbeddingFunction

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    texts = client.create_collection("texts", embedding_function=ShapevmEmbeddingFunction(model))
    texts.add(ids=[str(i) for i in range(3)], documents=TEXTS)
    again = client.get_collection("texts")  # made from its configuration
    (found,) = again.query(query_texts=[QUERY], n_results=3)["documents"]
    return list(found)


def expected(model: str) -> list[str]:
    encoder = SentenceEncoder(model)
    scores = encoder.similarity(encoder.encode_query(QUERY), encoder.encode_document(TEXTS))[0]
    return [TEXTS[i] for i in np.argsort(-scores)]


if __name__ == "__main__":
    library, path = sys.argv[1:]
    found = globals()[library](path)
    assert found == expected(path), found
    print("right")
