"""The endpoints of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from fairerclip import __version__
from fairerclip._util.types import Floats
from fairerclip.errors import EncoderError, FairerClipError, ImageError
from fairerclip.serving.answer_forms import NPY, Reply, accepted_form, as_json, as_json_blocks, as_npy
from fairerclip.serving.problems import RequestProblem, internal
from fairerclip.serving.request_body import RequestFields, checked_rows, read_given, whole_number
from fairerclip.serving.request_guard import EXCHANGE, Endpoint, Exchange, PeerGoneError, RequestGuard
from fairerclip.serving.served_model import ServedModel, as_texts, ranked
from fairerclip.serving.service_log import log
from fairerclip.serving.service_schema import DESCRIPTION, FIELDS, RESPONSES, docs_page, request_body
from fairerclip.serving.service_state import Service

Answer = Callable[[Service, ServedModel, RequestFields, str], Coroutine[Any, Any, Reply]]
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def create_app(service: Service, on_end: Callable[[], Any] = lambda: None) -> RequestGuard:
    """Return the ASGI application of a service; ``on_end`` is called when the model is loaded or cannot be."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start(on_end)
        yield
        service.stop()

    app = FastAPI(
        title="fairerclip",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    direct: dict[tuple[str, str], Endpoint] = {}
    for name, answer in {"classify": classify, "rank": rank, "mitigate": mitigate, "embed": embed}.items():
        direct["POST", f"/v1/{name}"] = endpoint = _endpoint(service, name, answer)
        app.add_api_route(
            f"/v1/{name}",
            _route(endpoint),
            methods=["POST"],
            name=name,
            summary=(answer.__doc__ or "").partition("\n")[0],
            response_class=Response,
            responses=RESPONSES[name],
            openapi_extra=request_body(name),
        )
    _add_state(app, service)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: Any) -> Response:
        if error.status_code == 405:
            allow = ((b"allow", (error.headers or {}).get("Allow", "GET").encode()),)
            problem = RequestProblem(
                "method_not_allowed", "the endpoint has another method: see /docs", allow
            )
        else:
            problem = RequestProblem("not_found", "there is no such endpoint: see /docs")
        return _response(request.scope[EXCHANGE].error(problem))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        """Answer an error of ours; it is raised again after that, and `RequestGuard` logs it."""
        return _response(request.scope[EXCHANGE].error(internal()))

    return RequestGuard(app, service, direct)


def _endpoint(service: Service, name: str, answer: Answer) -> Endpoint:
    """Return a function that reads a request, waits for its answer, and turns errors into answers."""

    async def endpoint(exchange: Exchange) -> Reply:
        try:
            form = accepted_form(exchange.headers.get(b"accept", b""))
            model = service.model
            model.require(name)
            allowed = [
                field for field in FIELDS[name] if model.encodes or field not in ("images", "texts", "text")
            ]
            given = await read_given(exchange, service.limits, model.width, allowed)
            exchange.rows = _count(given) - (name == "rank" and _first_is_query(model, given))
            async with asyncio.timeout_at(exchange.deadline):
                return await answer(service, model, given, form)
        except RequestProblem as refusal:
            problem = refusal
        except PeerGoneError:
            raise
        except TimeoutError:
            problem = RequestProblem(
                "timed_out", f"there was no answer within {service.limits.seconds} seconds"
            )
        except ImageError as error:
            problem = RequestProblem("image_refused", f"an image was refused: {error}")
        except EncoderError as error:
            problem = RequestProblem("text_refused", str(error))
        except FairerClipError as error:
            problem = RequestProblem("refused_by_model", str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not show its traceback to the peer
            log("internal error", logging.ERROR, trace=True, request_id=exchange.request_id)
            problem = internal()
        return exchange.error(problem)

    return endpoint


def _route(endpoint: Endpoint) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def route(request: Request) -> Response:
        return _response(await endpoint(request.scope[EXCHANGE]))

    return route


def _response(reply: Reply) -> Response:
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, {**headers, "content-type": reply.kind})


async def classify(service: Service, model: ServedModel, given: RequestFields, form: str) -> Reply:
    """Predict a class for each embedding or image."""
    scores = await service.call(model.scoring, await _rows(service, model, given))
    if form == NPY:
        return as_npy(scores)
    probabilities = model.probabilities(scores)
    return await as_json_blocks(
        {
            "labels": model.labels(scores),
            "classes": model.classes,
            "scores": scores,
            "probabilities": probabilities,
        }
    )


async def rank(service: Service, model: ServedModel, given: RequestFields, form: str) -> Reply:
    """Rank embeddings or images by a class, or by any query if the model is a mitigator."""
    about = None
    if model.classes is not None:
        _refuse_fields(given, ("query", "text"), f"{model.kind} ranks by one of its classes: give class")
        place = model.place(given.fields.get("class"), as_text=not given.is_json)
        rows = await _rows(service, model, given)
        scores = (await service.call(model.scoring, rows))[:, place]
    else:
        _refuse_fields(given, ("class",), "a mitigator has no classes: give query or text")
        query, rows = await _query_and_rows(service, model, given)
        scores = await service.call(model.ranking, (query[None], rows), len(rows))
        about = model.about(query)
    ranking = ranked(scores, whole_number(given, "k", 1, len(rows)))
    if form == NPY:
        return as_npy(np.column_stack([ranking.indices, ranking.scores]))
    answer = {"order": ranking.indices.tolist(), "scores": ranking.scores.tolist()}
    return as_json(answer if model.classes is not None else {**answer, "about": about})


async def mitigate(service: Service, model: ServedModel, given: RequestFields, form: str) -> Reply:
    """Map embeddings, or those of images, to mitigated ones of the same space."""
    return await _embeddings(await service.call(model.mitigating, await _rows(service, model, given)), form)


async def embed(service: Service, model: ServedModel, given: RequestFields, form: str) -> Reply:
    """Embed texts or images with the encoder."""
    texts = given.fields.get("texts")
    if (texts is None) == (given.images is None):
        raise RequestProblem("invalid_request", "give either texts or images")
    if texts is None:
        return await _embeddings(await _rows(service, model, given), form)
    return await _embeddings(await _read(service, model, texts), form)


async def _embeddings(rows: Floats, form: str) -> Reply:
    return as_npy(rows) if form == NPY else await as_json_blocks({"embeddings": rows})


async def _rows(service: Service, model: ServedModel, given: RequestFields) -> Floats:
    """Return the embeddings of a request, or those of its images."""
    if (given.embeddings is None) == (given.images is None):
        raise RequestProblem("invalid_request", "give embeddings" + (" or images" if model.encodes else ""))
    if given.images is None:
        return checked_rows(given.embeddings, model.width, service.limits.rows)
    if not given.images:
        raise RequestProblem("no_rows", "images must have at least one image; got none")
    if len(given.images) > service.limits.images:
        raise RequestProblem(
            "too_many_rows", f"at most {service.limits.images} images; got {len(given.images)}"
        )
    pixels = await service.decode(model.decoding, given.images)
    return np.asarray(await service.call(model.seeing, pixels))


async def _read(service: Service, model: ServedModel, texts: Any) -> Floats:
    """Return the embeddings (m, p) of texts."""
    if not isinstance(texts, list):
        raise RequestProblem("invalid_request", "texts must be a list of texts")
    if not texts:
        raise RequestProblem("no_rows", "texts must have at least one text; got none")
    if len(texts) > service.limits.rows:
        raise RequestProblem("too_many_rows", f"at most {service.limits.rows} texts; got {len(texts)}")
    return np.asarray(await service.call(model.reading, as_texts(texts)))


async def _query_and_rows(
    service: Service, model: ServedModel, given: RequestFields
) -> tuple[Floats, Floats]:
    """Return the query (p,) and the rows (n, p) of a ranking; in .npy without a text, the first row is the query."""
    query, text = given.fields.get("query"), given.fields.get("text")
    if given.is_json and (query is None) == (text is None):
        raise RequestProblem("invalid_request", "give query" + (" or text" if model.encodes else ""))
    if text is not None:
        return (await _read(service, model, [text]))[0], await _rows(service, model, given)
    if query is not None:
        (row,) = checked_rows([query], model.width, 1, "query")
        return row, await _rows(service, model, given)
    if given.images is not None:
        raise RequestProblem("invalid_request", "give text with an image")
    rows = checked_rows(given.embeddings, model.width, service.limits.rows + 1)
    if len(rows) < 2:
        raise RequestProblem(
            "no_rows", "the first row is the query, and at least one more row is needed; got none"
        )
    return rows[0], rows[1:]


def _first_is_query(model: ServedModel, given: RequestFields) -> bool:
    """Return whether the first row of a ranking is its query."""
    return model.classes is None and not given.is_json and "text" not in given.fields and _count(given) > 0


def _refuse_fields(given: RequestFields, names: tuple[str, ...], message: str) -> None:
    if any(name in given.fields for name in names):
        raise RequestProblem("invalid_request", message)


def _count(given: RequestFields) -> int:
    """Return the number of rows, images or texts of a request, for logs and metrics."""
    if isinstance(given.embeddings, np.ndarray):
        return given.embeddings.shape[0] if given.embeddings.ndim else 0
    parts = (given.embeddings, given.images, given.fields.get("texts"))
    return next((len(part) for part in parts if isinstance(part, list)), 0)


def _add_state(app: FastAPI, service: Service) -> None:
    """Add the endpoints about the service itself."""

    @app.get("/v1/model", responses=RESPONSES["model"], response_class=Response)
    async def model(request: Request) -> Response:
        """Describe the model: its kind, classes, width, and what it can answer."""
        try:
            limits = service.limits
            told = {"rows": limits.rows, "images": limits.images, "body_bytes": limits.body_bytes}
            return _response(as_json({**service.model.facts(), "limits": told}))
        except RequestProblem as problem:
            return _response(request.scope[EXCHANGE].error(problem))

    @app.get("/healthz", response_class=Response)
    async def healthz() -> Response:
        """Say that the process runs."""
        return _response(as_json({"status": "alive"}))

    @app.get("/readyz", response_class=Response)
    async def readyz(request: Request) -> Response:
        """Say whether the model is loaded, has answered a first call, and can still be called."""
        if service.ready:
            return _response(as_json({"status": "ready"}))
        why = (
            "the model is being loaded"
            if service.works
            else "the model's thread ended: start the service again"
        )
        return _response(request.scope[EXCHANGE].error(RequestProblem("not_ready", why)))

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return the counters of all processes, for Prometheus."""
        text, kind = service.metrics.page()
        return Response(text, headers={"content-type": kind})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        policy = {"content-security-policy": CONTENT_POLICY}
        return Response(docs_page(app.openapi()), headers=policy, media_type="text/html")
