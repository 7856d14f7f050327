"""Exceptions of Azure's client, as errors of one sentence."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr

from azure.ai.ml.exceptions import MlException
from azure.core import exceptions

from train_pytorch_model.errors import ServiceError

_COLOUR = re.compile(r"\x1b\[\d+m")
# The rest is advice on other tools.
_DETAILS = re.compile(r"Details: (?:\(x\) )?(.*?) Resolutions:")
_SIGN_IN_CODE = re.compile(r"AADSTS\d+: [^.]*\.")
_SIGNATURE = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")
MAX_REASON = 500  # characters
# What the client raises for an answer that is no JSON, or JSON of another shape.
_SHAPES = (ValueError, TypeError, AttributeError, LookupError)


@contextmanager
def translating_errors(step: str) -> Iterator[None]:
    """Turn exceptions into a `ServiceError` of one sentence, which names the step.

    What the client writes to standard error is shown on a terminal only.
    """
    try:
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
            yield
    except exceptions.ClientAuthenticationError as error:
        reason = one_line(str(error))
        if error.response is None:  # but a list of the credentials that were tried
            reason = next(iter(_SIGN_IN_CODE.findall(reason)), "")
        raise ServiceError(
            f"{step}: no credential works here. Sign in with `az login`, or set AZURE_CLIENT_ID,"
            f" AZURE_TENANT_ID and AZURE_CLIENT_SECRET. {reason[:MAX_REASON]}".rstrip()
        ) from error
    except (exceptions.ServiceRequestError, exceptions.ServiceResponseError) as error:
        text = f"{step}: Azure cannot be reached. {message_of(error)}"
        raise ServiceError(text, is_transient=True) from error
    except exceptions.HttpResponseError as error:
        status = error.status_code or 0
        text = f"{step}: Azure answers {status}. {message_of(error)}"
        raise ServiceError(text, is_transient=status in (408, 429) or status >= 500) from error
    except (exceptions.AzureError, MlException, OSError) as error:
        raise ServiceError(f"{step}: {message_of(error)}") from error
    except _SHAPES as error:  # the client takes the shape of an answer for granted
        raise ServiceError(
            f"{step}: the answer is not one of Azure ML's ({message_of(error)}). A proxy or a"
            " sign-in page of the network may have answered instead."
        ) from error


def message_of(error: Exception) -> str:
    """Return what an exception says, on one line and without what it repeats."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    text = one_line(text.partition("\nCode: ")[0])  # what follows repeats it, in parts
    details = _DETAILS.search(text)
    if details:
        text = details[1]
    return text[:MAX_REASON]


def one_line(text: str) -> str:
    """Return the text on one line, without colours and without the signatures of URLs."""
    return _SIGNATURE.sub(r"\1?…", " ".join(_COLOUR.sub("", text).split()))
