"""What the environment says about traces, as OpenTelemetry's own settings."""

import logging

import pytest

from trt_agent_tools.telemetry.turn_on import ENDPOINTS, Telemetry


@pytest.fixture(autouse=True)
def _wanted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:4318/v1/traces")
    caplog.set_level(logging.WARNING)


def test_without_an_endpoint_there_are_no_traces_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(ENDPOINTS[0])
    assert not Telemetry(metrics=False).observers
    assert not caplog.messages


def test_the_exporter_none_turns_traces_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert not Telemetry(metrics=False).observers


def test_a_protocol_that_is_not_spoken_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert not Telemetry(metrics=False).observers
    assert "grpc is not spoken here, only http/protobuf" in caplog.text


def test_settings_that_cannot_be_are_told_and_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    assert not Telemetry(metrics=False).observers
    assert "no traces are sent: they could not be set up" in caplog.text


def test_metrics_are_kept_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINTS[0])
    assert len(Telemetry(metrics=True).observers) == 1
