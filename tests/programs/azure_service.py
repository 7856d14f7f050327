"""The parts of Azure that `submit` needs: a workspace and storage, in memory, below azure-core's
transport.

azure-ai-ml, azure-core and azure-storage-blob are real. Requests are recorded, and none is sent.
"""

import json
import re
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import requests
from azure.core.credentials import AccessToken
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

SUBSCRIPTION, GROUP, WORKSPACE = "11111111-2222-3333-4444-555555555555", "group", "workspace"
ID = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)
MODEL = {
    "modelType": "mlflow_model",
    "modelUri": "azureml://datastores/workspaceblobstore/paths/model",
    "flavors": {"python_function": {"data": {}}},
}
HISTORY = "https://westeurope.api.azureml.ms"
SECRET = "sig=c2VjcmV0"
CONTAINER = "https://storage.blob.core.windows.net/container"
LOG_FILE = "user_logs/std_log_process_0.txt"
DATASTORE = {
    "id": f"{ID}/datastores/workspaceblobstore",
    "name": "workspaceblobstore",
    "properties": {
        "datastoreType": "AzureBlob",
        "accountName": "storage",
        "containerName": "container",
        "endpoint": "core.windows.net",
        "protocol": "https",
        "credentials": {"credentialsType": "AccountKey"},
        "isDefault": True,
    },
}
COMPONENT = {
    "type": "command",
    "name": "any",
    "version": "1",
    "command": "python",
    "environment": "azureml:any:1",
}
CODE = {
    "id": f"{ID}/codes/known/versions/1",
    "name": "1",
    "properties": {"codeUri": f"{CONTAINER}/src"},
}

Answer = tuple[int, Any]
"""Status and JSON, or the bytes of a page."""


@dataclass(frozen=True)
class Call:
    """A recorded request."""

    method: str
    path: str
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix(ID)}"


@dataclass
class AzureService:
    """The state of the fake service, and the requests it received."""

    computes: dict[str, dict[str, Any]] = field(default_factory=dict)
    vm_sizes: dict[str, int] = field(
        default_factory=lambda: {"Standard_NC4as_T4_v3": 1, "Standard_NC64as_T4_v3": 4}
    )
    """Name → number of GPUs."""
    components: set[str] = field(default_factory=set)
    environments: set[str] = field(default_factory=set)
    """`NAME:VERSION` of those that are registered, besides `mine:3`."""
    statuses: list[str] = field(default_factory=lambda: ["Completed"])
    """Statuses of the job, one per request; the last one is repeated."""
    log_statuses: list[str] = field(default_factory=lambda: ["Running", "Completed"])
    """Statuses of the job as reported to the log stream."""
    steps: dict[str, str] = field(default_factory=dict)
    """Steps of a pipeline: name → status."""
    is_new_code: bool = False
    """Whether no earlier job has uploaded the code, so that this one has to."""
    error: str = ""
    """Error message of the job."""
    log: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Name in the container → content."""
    fault: Callable[[Call], Answer | Exception | None] = lambda _: None
    """Returns a response or exception that replaces the normal response, or None."""
    calls: list[Call] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    """The job as it was submitted."""

    def send(
        self, adapter: HTTPAdapter, request: requests.PreparedRequest, **_: Any
    ) -> requests.Response:
        """Stand-in for `HTTPAdapter.send`."""
        url = urlsplit(str(request.url))
        call = Call(str(request.method), unquote(url.path), _body(request))
        self.calls.append(call)
        fault = self.fault(call)
        if isinstance(fault, Exception):
            raise fault
        if url.hostname == "storage.blob.core.windows.net":
            status, body, headers = self._storage(call, parse_qs(url.query))
        else:
            status, answer = fault or self._management(call)
            is_page = isinstance(answer, bytes)
            body = answer if is_page else json.dumps(answer).encode()
            headers = {"Content-Type": "text/html" if is_page else "application/json"}
        response = HTTPResponse(
            BytesIO(body),
            status=status,
            headers=headers,
            preload_content=False,
            reason=str(status),
            request_method=call.method,
        )
        return adapter.build_response(request, response)

    def changes(self) -> list[str]:
        """The resources that were created or changed, without uploads."""
        return [
            str(call) for call in self.calls if call.method == "PUT" and call.path.startswith(ID)
        ]

    def uploaded(self) -> set[str]:
        """The names of the blobs that were written, without the folder named by a hash."""
        puts = [
            call.path for call in self.calls if call.method == "PUT" and "/container/" in call.path
        ]
        return {re.sub(r"^/container/(LocalUpload/[0-9a-f]+/)?", "", path) for path in puts}

    def _management(self, call: Call) -> Answer:
        path = call.path.removeprefix(ID)
        kind, _, name = path.strip("/").partition("/")
        if (answer := _unchanging(call.method, kind, name)) is not None:
            return answer
        match call.method, kind:
            case "GET", "":
                tracking = f"azureml://westeurope.api.azureml.ms/mlflow/v1.0{ID}"
                properties = {"discoveryUrl": f"{HISTORY}/discovery", "mlFlowTrackingUri": tracking}
                return 200, {
                    "id": ID,
                    "name": WORKSPACE,
                    "location": "westeurope",
                    "properties": properties,
                }
            case "GET", "computes":
                return (200, self.computes[name]) if name in self.computes else _not_found(name)
            case "PUT", "computes":
                self.computes[name] = {"id": f"{ID}/computes/{name}", "name": name, **call.body}
                self.computes[name]["properties"]["provisioningState"] = "Succeeded"
                return 200, self.computes[name]
            case "PUT", "jobs":
                self.job = {"id": f"{ID}/jobs/{name}", "name": name, **call.body}
                return 201, self.job
            case "GET", "jobs":
                services = {
                    "Studio": {"endpoint": "https://ml.azure.com/job", "jobServiceType": "Studio"}
                }
                # The thread that shows the log also asks once.
                is_watch = threading.current_thread() is threading.main_thread()
                status = _next(self.statuses) if is_watch else self.statuses[0]
                more = {"status": status, "services": services}
                return 200, {**self.job, "properties": {**self.job["properties"], **more}}
            case "GET", "codes" if not self.is_new_code:
                return 200, {"value": [CODE]} if name.endswith("/versions") else CODE
            case "GET", "components":
                component, _, version = name.partition("/versions/")
                if f"{component}:{version}" in self.components:
                    return 200, {
                        "id": ID + path,
                        "name": version,
                        "properties": {"componentSpec": COMPONENT},
                    }
                return _not_found(name)
            case "GET", "environments":
                if name.replace("/versions/", ":") in self.environments:
                    return 200, {"id": ID + path, "name": name.rpartition("/")[2], "properties": {}}
                return _not_found(name)
            case "GET", _ if path.endswith("/versions"):
                return 200, {"value": []}
            case "PUT", "models":
                properties = call.body["properties"]
                properties.setdefault("flavors", {})
                return 201, {"id": ID + path, "name": "1", "properties": properties}
            case "PUT", _:
                return 201, {"id": ID + path, "name": path.rpartition("/")[2], **call.body}
        if path.endswith("/vmSizes"):
            sizes = self.vm_sizes.items()
            kinds = {"supportedComputeTypes": ["AmlCompute"]}
            return 200, {"value": [{"name": size, "gpus": gpus, **kinds} for size, gpus in sizes]}
        return self._history(path)

    def _history(self, path: str) -> Answer:
        """The run history: what showing the log, showing pipeline steps and downloading read."""
        if path.endswith("/children"):
            steps = self.steps.items()
            return 200, {
                "value": [
                    {"runId": name, "displayName": name, "status": status} for name, status in steps
                ]
            }
        if path == "/discovery":
            return 200, {"api": HISTORY, "history": HISTORY}
        if path.endswith(f"/runs/{self.job['name']}/data") or path.endswith("/rundata"):
            return 200, {"runMetadata": {"runId": self.job["name"], "outputs": {}}}
        if path.endswith("/details"):
            error = {"error": {"code": "UserError", "message": self.error}} if self.error else None
            return 200, {
                "runId": self.job["name"],
                "status": _next(self.log_statuses),
                "logFiles": {LOG_FILE: f"{CONTAINER}/{LOG_FILE}?{SECRET}"},
                "error": error,
            }
        return _not_found(path)

    def _storage(
        self, call: Call, query: dict[str, list[str]]
    ) -> tuple[int, bytes, dict[str, str]]:
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        name = call.path.removeprefix("/container").strip("/")
        if query.get("comp") == ["list"]:
            return (
                200,
                self._listed(query.get("prefix", [""])[0]),
                {"Content-Type": "application/xml"},
            )
        if call.method == "PUT":
            if "comp" not in query:
                self.blobs[name] = call.body or b""
            return 200 if "comp" in query else 201, b"", headers
        if name == LOG_FILE:
            return 200, self.log.encode(), headers
        if name not in self.blobs:
            return 404, b"", headers
        content = self.blobs[name]
        headers |= {"Content-Length": str(len(content)), "x-ms-blob-type": "BlockBlob"}
        if call.method == "HEAD":
            return 200, b"", headers
        headers["Content-Range"] = f"bytes 0-{len(content) - 1}/{len(content)}"
        return 206, content, headers

    def _listed(self, prefix: str) -> bytes:
        blobs = "".join(
            f"<Blob><Name>{name}</Name><Properties><Content-Length>{len(content)}</Content-Length>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name, content in self.blobs.items()
            if name.startswith(prefix)
        )
        listed = f"<Blobs>{blobs}</Blobs><NextMarker />"
        return f"<EnumerationResults>{listed}</EnumerationResults>".encode()


class Credential:
    """Stand-in for DefaultAzureCredential: returns a well-formed token."""

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:  # noqa: ARG002
        now = int(time.time())
        claims = {
            "tid": "tenant",
            "oid": "object",
            "aud": "https://ml.azure.com",
            "exp": now + 3600,
        }
        parts = [_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), "c2lnbmF0dXJl"]
        return AccessToken(".".join(parts), now + 3600)


def cluster(name: str, vm_size: str, max_nodes: int, kind: str = "AmlCompute") -> dict[str, Any]:
    """A compute target as the service describes it."""
    scale = {"minNodeCount": 0, "maxNodeCount": max_nodes, "nodeIdleTimeBeforeScaleDown": "PT600S"}
    properties = {"vmSize": vm_size, "scaleSettings": scale, "vmPriority": "Dedicated"}
    return {
        "id": f"{ID}/computes/{name}",
        "name": name,
        "location": "westeurope",
        "properties": {
            "computeType": kind,
            "provisioningState": "Succeeded",
            "properties": properties if kind == "AmlCompute" else {},
        },
    }


def _unchanging(method: str, kind: str, name: str) -> Answer | None:
    """What the service answers whatever its state, or None."""
    match method, kind:
        case "POST", "codes":
            where = {"blobUri": CONTAINER, "storageAccountArmId": "/storage"}
            credential = {"credentialType": "SAS", "sasUri": f"{CONTAINER}?{SECRET}"}
            return 200, {
                "blobReferenceForConsumption": {**where, "credential": credential},
                "pendingUploadType": "TemporaryBlobReference",
            }
        case "POST", "datastores":
            return 200, {"secretsType": "AccountKey", "key": "a2V5"}
        case "GET", "datastores":
            return 200, DATASTORE if name else {"value": [DATASTORE]}
        case "GET", "environments" if "/versions/" not in name:
            return 200, {
                "value": [
                    {"id": f"{ID}/environments/mine/versions/3", "name": "3", "properties": {}}
                ]
            }
        case "GET", "models":
            identity = f"{ID}/models/{name.partition('/')[0]}/versions/1"
            model = {"id": identity, "name": "1", "properties": MODEL}
            if "/versions/" in name:
                return 200, model
            next_version = {"id": identity, "name": name, "properties": {"nextVersion": "1"}}
            return 200, {"value": [model]} if name.endswith("/versions") else next_version
        case "POST", "jobs" if name.endswith("/cancel"):
            return 200, None
    return None


def _body(request: requests.PreparedRequest) -> Any:
    body: Any = request.body
    if body is None or isinstance(body, (bytes, str)):
        content = body.encode() if isinstance(body, str) else body or b""
    else:
        content = body.read() if hasattr(body, "read") else b"".join(_chunks(body))
    if "json" in str(request.headers.get("Content-Type", "")) and content:
        return json.loads(content)
    return content


def _next(statuses: list[str]) -> str:
    return statuses.pop(0) if len(statuses) > 1 else statuses[0]


def _chunks(body: Any) -> Iterator[bytes]:
    yield from body


def _encoded(claims: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


def _not_found(name: str) -> Answer:
    return 404, {"error": {"code": "NotFound", "message": f"{name} does not exist."}}
