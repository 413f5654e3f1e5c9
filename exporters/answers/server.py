"""An exporter that is asked over HTTP instead of reading tables: its JSON API, and one sentence for each way to fail.

Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY``). Redirects are refused: an answer of another server
would pass for that of this one, and it would get the login.
"""

from __future__ import annotations

import json
import netrc
import os
import ssl
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx2

from exporters.answers.answer import VERSION_HEADER, Answer, AnswersRestarted, ServerRefused, ServerUnavailable
from exporters.answers.incidents import IncidentReport
from streaming.durations import duration_text
from streaming.errors import ConfigurationError
from streaming.escapes import printable
from streaming.secret_values import server_password
from streaming.settings import ServerSettings, check_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.answers.answer import Question

T = TypeVar("T")
VARIABLE: Final = "ISRWATCH_SERVER"
API: Final = "/api/v1"
_LONGEST_QUOTE: Final = 300
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE, _UNAVAILABLE = 200, 401, 403, 404, 410, 503
_NO_SEGMENTS: Final = frozenset({"", ".", ".."})
"""Segments of a path that are removed from it."""
_GATEWAY: Final = frozenset({502, 503, 504})


class Server:
    """The API of one exporter. Safe to call from any thread."""

    def __init__(self, settings: ServerSettings, environment: Mapping[str, str] = os.environ) -> None:
        """Connect to nothing yet.

        Raises:
            ServerRefused: the address, a certificate or the login cannot be used.
        """
        if "@" in settings.url:
            raise ServerRefused(
                "the address of the server has a login in it, which others see; write it without, and set server.user "
                "and server.password (ISRWATCH_SERVER__PASSWORD), or ~/.netrc"
            )
        try:
            check_url("the address of the server", settings.url)
        except ConfigurationError as error:
            raise ServerRefused(str(error)) from None
        self.url = settings.url.rstrip("/")
        self._timeout = settings.timeout
        self._login = _login(settings, environment)
        try:
            self._client = httpx2.Client(
                verify=_context(settings),
                auth=self._login,
                timeout=settings.timeout,
                follow_redirects=False,
                headers={"Accept": "application/json", "User-Agent": f"isrwatch/{version('isrwatch')}"},
            )
        except (ValueError, ImportError, httpx2.InvalidURL) as error:
            raise ServerRefused(f"the proxy of the environment cannot be used: {error}; see HTTPS_PROXY") from None

    def document(
        self, path: str, parameters: Iterable[tuple[str, str]] = (), statuses: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        """Return what a path of the API answers.

        Args:
            path: below ``/api/v1/``, percent-encoded.
            parameters: names and values; a name may come several times.
            statuses: with which, besides 200, there is an answer, and not an error.

        Raises:
            ServerRefused: no later try helps.
            ServerUnavailable: there is no answer now.
            AnswersRestarted: what was followed is not there any more.
            ConfigurationError: the server refuses a parameter; the sentence is its own.
        """
        response = self._asked(f"{self.url}{API}/{path}", parameters)
        content = self._content(response)
        if response.status_code == _OK or (response.status_code in statuses and "error" not in content):
            return content
        raise self._error(response, content)

    def answer(self, name: str, question: Question) -> Answer:
        """Return the answer about a subject. Errors are those of :meth:`document`."""
        parameters = [("cluster", each) for each in question.clusters]
        parameters += [(name, value) for name, values in question.filters.items() for value in values]
        parameters += [("all", "true")] if question.everything else []
        parameters += [] if question.at is None else [("at", question.at)]
        return self._made(Answer.of_document, self.document(f"answers/{name}", parameters))

    def incident(self, any_id: str) -> IncidentReport:
        """Return everything about an incident. Errors are those of :meth:`document`."""
        if any_id in _NO_SEGMENTS:
            raise ConfigurationError(f"there is no incident {any_id!r}; isrwatch incidents --all lists them")
        return self._made(IncidentReport.of_document, self.document(f"incidents/{quote(any_id, safe='')}"))

    def _made(self, make: Callable[[dict[str, Any]], T], document: dict[str, Any]) -> T:
        try:
            return make(document)
        except ValueError as error:
            raise ServerRefused(f"{self.url} answers what this version does not understand: {_quoted(error)}") from None

    def _asked(self, url: str, parameters: Iterable[tuple[str, str]]) -> httpx2.Response:
        try:
            return self._client.get(url, params=httpx2.QueryParams([*parameters]))
        except httpx2.TimeoutException:
            raise ServerUnavailable(
                f"{self.url} did not answer within {duration_text(self._timeout)} (server.timeout)"
            ) from None
        except httpx2.ProxyError as error:
            raise ServerUnavailable(f"the proxy to {self.url} refuses: {_quoted(error)}; see HTTPS_PROXY") from None
        except httpx2.ConnectError as error:
            raise self._unconnected(error) from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise ServerUnavailable(f"the answer of {self.url} was cut off: {_quoted(error)}") from None
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise ServerRefused(f"{self.url} is no address: {_quoted(error)}") from None

    def _unconnected(self, error: Exception) -> Exception:
        text = _quoted(error)
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return ServerRefused(
                f"the certificate of {self.url} is not trusted ({_reason(text)}); set server.ca_file to the "
                "certificate of who signed it"
            )
        if "SSL" in text or "TLS" in text:
            return ServerRefused(f"no TLS with {self.url}: {text}; is it http://, or does it ask for a certificate?")
        return ServerUnavailable(f"cannot connect to {self.url}: {text}; does isrwatch export run there?")

    def _content(self, response: httpx2.Response) -> dict[str, Any]:
        """Return the JSON of a response of an isrwatch.

        Raises:
            ServerRefused: it is not one's.
            ServerUnavailable: a proxy answers for it, or the answer ends within.
        """
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if response.is_redirect:
            where = _quoted(response.headers.get("location", "elsewhere"))
            raise ServerRefused(f"{self.url} leads to {where}; give the address of isrwatch export itself")
        if response.status_code in {_UNAUTHORIZED, _FORBIDDEN}:
            asks = "refuses the login" if self._login else "asks for a login"
            raise ServerRefused(
                f"{self.url} {asks} ({status}); set server.user and server.password (ISRWATCH_SERVER__PASSWORD), or "
                "~/.netrc"
            )
        if VERSION_HEADER not in response.headers:
            if response.status_code in _GATEWAY:
                raise ServerUnavailable(f"{self.url} answers {status}: isrwatch export does not run behind it")
            kind = response.headers.get("content-type", "nothing").partition(";")[0]
            raise ServerRefused(
                f"{self.url} is no isrwatch export, or one of an older version: it answers {status} with "
                f"{_quoted(kind)}; is there a path in front of it?"
            )
        try:
            content = json.loads(response.content)
        except ValueError:
            raise ServerUnavailable(f"the answer of {self.url} was cut off: {len(response.content):,} bytes") from None
        if not isinstance(content, dict):
            raise ServerRefused(f"{self.url} answers what no isrwatch export answers")
        return content

    def _error(self, response: httpx2.Response, content: Mapping[str, Any]) -> Exception:
        """Return the error that a response is: the sentence of the server, and its version if that is the reason."""
        sentence = _quoted(content.get("error", f"{response.status_code} {response.reason_phrase}"))
        theirs, ours = _quoted(response.headers[VERSION_HEADER]), version("isrwatch")
        if response.status_code == _GONE:
            return AnswersRestarted(sentence)
        if response.status_code >= 500:  # noqa: PLR2004 - HTTP's own
            return ServerUnavailable(f"{self.url} cannot answer now: {sentence}")
        if theirs == ours:
            return ConfigurationError(sentence)
        older = f"{self.url} is isrwatch {theirs}, and this is {ours}: "
        return ConfigurationError(f"{older}{sentence}")


def server_of(
    option: str | None, settings: ServerSettings, environment: Mapping[str, str] = os.environ
) -> Server | None:
    """Return the server that a command asks, by the option, the variable, or the configuration; None without any."""
    url = option or environment.get(VARIABLE) or settings.url
    if not url:
        return None
    login = {name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "url"}
    is_other = bool(settings.url) and urlsplit(url).netloc != urlsplit(settings.url).netloc
    if is_other:  # the login is for the server of the configuration
        login |= {"user": "", "password": ""}
    return Server(ServerSettings(url=url, **login), environment)


def _context(settings: ServerSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
        if settings.ca_file:
            context.load_verify_locations(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ServerRefused(f"server.ca_file is {settings.ca_file!r}: {_why(error)}") from None
    if settings.certificate_file:
        try:
            context.load_cert_chain(settings.certificate_file, settings.key_file or None, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            files = f"{settings.certificate_file!r} with server.key_file {settings.key_file!r}"
            raise ServerRefused(f"server.certificate_file is {files}: {_why(error)}") from None
    return context


def _login(settings: ServerSettings, environment: Mapping[str, str]) -> httpx2.BasicAuth | None:
    if settings.user:
        return httpx2.BasicAuth(settings.user, server_password(settings, environment))
    host = urlsplit(settings.url).hostname or ""
    try:
        login = netrc.netrc(environment.get("NETRC")).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, netrc.NetrcParseError) as error:
        raise ServerRefused(f"the login of {host} cannot be read from ~/.netrc: {error}") from None
    return None if login is None else httpx2.BasicAuth(login[0], login[2] or "")


def _why(error: OSError) -> str:
    return error.strerror if error.strerror and not isinstance(error, ssl.SSLError) else "no certificate in PEM"


def _reason(text: str) -> str:
    """Return why a certificate is not trusted, from OpenSSL's message.

    >>> _reason("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get issuer (_ssl.c:1006)")
    'unable to get issuer'
    """
    return text.rpartition("verify failed:")[2].partition("(_ssl")[0].strip() or "unknown reason"


def _quoted(said: object) -> str:
    """Return what others said as part of a sentence."""
    text = printable(str(said)).strip() or type(said).__name__
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
