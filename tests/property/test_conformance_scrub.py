"""Whatever a provider echoes, a rendered transcript never shows a bootstrap blob."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.provider.conformance.transcript import Exchange, Transcript
from bigfleet.wire import provider_pb2 as pb

LINES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=14, max_size=60)
# Words that describe nothing secret: the frame of a rendered call and of the echo below.
FRAME = "sent back Configure machine_id cluster_id bootstrap_blob INTERNAL could not run code last_error labels"


@given(
    st.lists(LINES, min_size=1, max_size=4, unique=True), st.integers(10, 200), st.sampled_from(["raw", "hex", "b64"])
)
def test_no_line_of_a_blob_survives_rendering(lines: list[str], cut: int, shape: str) -> None:
    blob = "\n".join(lines).encode()
    echoed = {"raw": blob.decode(), "hex": blob.hex(), "b64": base64.b64encode(blob).decode()}[shape][:cut]
    request = pb.ConfigureRequest(machine_id="m", cluster_id="c", bootstrap_blob=blob)
    transcript = Transcript()
    transcript.add(Exchange("Configure", request, "INTERNAL", None, f"could not run {echoed}, code 1"))
    record = pb.Machine(id="m", last_error=f"could not run {echoed}", labels={"l": echoed})
    transcript.add(Exchange("Get", pb.MachineRef(id="m"), "OK", record))
    shown = "\n".join(transcript.tail(5))
    for line in lines:
        piece = {"raw": line, "hex": line.encode().hex(), "b64": line}[shape][:14]
        assert piece in FRAME or piece not in shown


@given(st.binary(min_size=0, max_size=5000))
def test_a_request_shows_only_the_size_of_its_blob(blob: bytes) -> None:
    transcript = Transcript()
    request = pb.ConfigureRequest(machine_id="m", bootstrap_blob=blob)
    transcript.add(Exchange("Configure", request, "OK", pb.TransitionAck(operation_id="op-1")))
    (call,) = transcript.tail(1)
    assert ("bootstrap_blob" in call) == bool(blob)
    if blob:
        assert f"bootstrap_blob=<{len(blob)} bytes>" in call
