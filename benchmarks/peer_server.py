"""A server of sentence-transformers with OpenAI's form, as pages of frameworks show it; requests take turns.

python benchmarks/peer_server.py FOLDER PORT
"""

from __future__ import annotations

import asyncio
import base64
import sys

import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

model = SentenceTransformer(sys.argv[1], device="cpu")
turn = asyncio.Lock()


async def embeddings(request: Request) -> JSONResponse:
    given = await request.json()
    texts = [given["input"]] if isinstance(given["input"], str) else given["input"]
    async with turn:
        found = await asyncio.to_thread(model.encode, texts)
    rows = [
        {"index": i, "embedding": base64.b64encode(row.tobytes()).decode()} for i, row in enumerate(found)
    ]
    return JSONResponse({"data": rows})


async def health(request: Request) -> JSONResponse:
    return JSONResponse({})


app = Starlette(
    routes=[Route("/v1/embeddings", embeddings, methods=["POST"]), Route("/health", health)],
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
