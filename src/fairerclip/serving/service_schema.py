"""What the OpenAPI schema says about bodies and answers, and a page of it that needs no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from fairerclip.serving.problems import STATUSES

DESCRIPTION = (
    "One fitted model of fairerclip. Rows are sent as JSON or as .npy (application/x-npy), and the Accept header "
    "chooses the form of the answer. Errors have a code, a message and the id of the request."
)
FIELDS = {
    "classify": ("embeddings", "images"),
    "rank": ("embeddings", "images", "class", "query", "text", "k"),
    "mitigate": ("embeddings", "images"),
    "embed": ("texts", "images"),
}
"""Fields of the requests."""
_ROWS = {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "number"}}}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_LABEL = {"type": ["string", "number", "boolean"]}
_PROPERTIES: dict[str, dict[str, Any]] = {
    "embeddings": {**_ROWS, "description": "Rows of the width of the model."},
    "images": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "contentEncoding": "base64"},
        "description": "Files of JPEG, PNG, WEBP or BMP in base64; needs an encoder.",
    },
    "texts": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    "class": {**_LABEL, "description": "Class to rank by, for models with classes."},
    "query": {**_NUMBERS, "description": "Embedding of a query, for a mitigator."},
    "text": {"type": "string", "description": "Query as a text, for a mitigator; needs an encoder."},
    "k": {"type": "integer", "minimum": 1, "description": "Number of rows of the answer; default: all."},
}
_ANSWERS: dict[str, dict[str, Any]] = {
    "classify": {
        "labels": {"type": "array", "items": _LABEL},
        "classes": {"type": "array", "items": _LABEL},
        "scores": {**_ROWS, "description": "Of each row, in the order of classes; the largest decides."},
        "probabilities": {
            **_ROWS,
            "type": ["array", "null"],
            "description": "null for methods without them.",
        },
    },
    "rank": {
        "order": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Numbers of rows, best first.",
        },
        "scores": _NUMBERS,
        "about": {
            "type": ["string", "null"],
            "description": "Of a mitigator: the sensitive attribute that the query asks for; it is then not mitigated.",
        },
    },
    "mitigate": {"embeddings": _ROWS},
    "embed": {"embeddings": _ROWS},
    "model": {
        "fairerclip": {"type": "string"},
        "kind": {"type": "string"},
        "width": {"type": "integer"},
        "classes": {"type": ["array", "null"], "items": _LABEL},
        "probabilities": {"type": "boolean"},
        "endpoints": {"type": "array", "items": {"type": "string"}},
        "encoder": {"type": ["object", "null"]},
        "limits": {"type": "object"},
    },
}
_ARRAYS = {
    "classify": "Scores (n, c) of float64.",
    "rank": "Numbers of rows and scores (k, 2) of float64, best first.",
    "mitigate": "Mitigated rows (n, p).",
    "embed": "Embeddings (n, p) of float32.",
}
_OPTIONAL = {"about"}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"enum": list(STATUSES)},
                "message": {"type": "string"},
                "request_id": {"type": "string"},
            },
            "required": ["code", "message", "request_id"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def _answer_schema(name: str) -> dict[str, Any]:
    properties = _ANSWERS[name]
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in _OPTIONAL],
        "additionalProperties": False,
    }


def _responses(name: str) -> dict[int | str, dict[str, Any]]:
    content: dict[str, Any] = {"application/json": {"schema": _answer_schema(name)}}
    if name in _ARRAYS:
        content["application/x-npy"] = {
            **_BINARY,
            "schema": {**_BINARY["schema"], "description": _ARRAYS[name]},
        }
    error = {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}}
    return {200: {"description": "The answer.", "content": content}, "4XX": error, "5XX": error}


RESPONSES = {name: _responses(name) for name in _ANSWERS}
"""Answers of each endpoint."""


def request_body(name: str) -> dict[str, Any]:
    """Return the schema of the body of an endpoint, and of its query if the body is binary."""
    fields = FIELDS[name]
    schema = {
        "type": "object",
        "properties": {key: _PROPERTIES[key] for key in fields},
        "additionalProperties": False,
    }
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if "embeddings" in fields:
        content["application/x-npy"] = _BINARY
    content.update({f"image/{kind}": _BINARY for kind in ("jpeg", "png", "webp", "bmp")})
    options = [key for key in fields if key in ("class", "text", "k")]
    return {
        "requestBody": {"required": True, "content": content},
        "parameters": [
            {
                "name": key,
                "in": "query",
                "required": False,
                "description": f"With a binary body. {_PROPERTIES[key]['description']}",
                "schema": {"type": "string"},
            }
            for key in options
        ],
    }


def docs_page(schema: Mapping[str, Any]) -> str:
    """Return a page of the schema in HTML, without scripts and without anything from elsewhere."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>fairerclip serve</title>",
        "<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "pre{background:#f4f4f4;padding:.5em;overflow:auto}code{background:#f4f4f4}</style>",
        f"<h1>fairerclip {escape(schema['info']['version'])}</h1><p>{escape(schema['info']['description'])}</p>",
        '<p>The schema is at <a href="/openapi.json">/openapi.json</a>.</p>',
    ]
    for path, methods in schema["paths"].items():
        for method, entry in methods.items():
            text = entry.get("description") or entry.get("summary") or ""
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(text)}</p>")
            if "requestBody" in entry:
                for kind, content in entry["requestBody"]["content"].items():
                    parts.append(_details(f"body {kind}", content["schema"]))
            for status, answer in entry["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    if content.get("schema") and status == "200":
                        parts.append(_details(f"answer {kind}", content["schema"]))
    codes = "".join(f"<tr><td>{status}<td><code>{code}</code>" for code, status in STATUSES.items())
    parts.append(f"<h2>Codes of errors</h2><table>{codes}</table></html>")
    return "".join(parts)


def _details(title: str, schema: Any) -> str:
    text = escape(json.dumps(schema, indent=1))
    return f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"
