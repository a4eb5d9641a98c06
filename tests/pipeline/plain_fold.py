"""What happened to each job, told by plain Python: the judge of the tables.

It shares no code with them: dictionaries, one event after the other, as the log's page says. Rows are
dictionaries with the columns of `attempts` and of the two tables of jobs.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from rollmq.core.line import decode_line

Row = dict[str, Any]
ENDED = {"done", "cancelled", "dropped"}


def moment(us: int | None) -> datetime | None:
    """As Spark gives a timestamp back in UTC."""
    if us is None:
        return None
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000, tzinfo=None)


class PlainFold:
    """Reads one group's log."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.jobs: dict[str, list[Row]] = {}
        """Of each job its lives, the newest last."""
        self.attempts: dict[str, list[Row]] = {}

    def read(self, lines: Iterable[bytes]) -> "PlainFold":
        for line in lines:
            event = decode_line(line)
            kind = msgspec.to_builtins(event)["type"]
            if kind in ("redrive", "drop"):
                for job_id in event.job_ids:
                    getattr(self, f"_{kind}")(event, job_id)
            elif hasattr(event, "job_id"):
                getattr(self, f"_{kind}")(event)
        return self

    # -- rows

    def job_rows(self, *, is_closed: bool) -> list[Row]:
        rows = [life for lives in self.jobs.values() for life in lives]
        kept = [row for row in rows if (row["closed_index"] is not None) == is_closed]
        return kept if is_closed else [self._without(row) for row in kept]

    @staticmethod
    def _without(row: Row) -> Row:
        return {name: value for name, value in row.items() if not name.startswith("closed_")}

    def attempt_rows(self) -> list[Row]:
        found = []
        for job_id, rows in self.attempts.items():
            lives = self.jobs[job_id]
            for row in rows:
                closed_at = lives[row["life"] - 1]["closed_at"]
                found.append(row | {"closed_date": closed_at.date() if closed_at else None})
        return found

    # -- events

    def _enqueue(self, event: Any) -> None:
        self.jobs[event.job_id] = [
            {
                "group": self.group,
                "job_id": event.job_id,
                "enqueue_index": event.index,
                "client_id": event.client_id,
                "exec": event.exec,
                "priority": event.priority,
                "key": event.key,
                "headers": event.headers,
                "payload_bytes": event.payload_bytes,
                "tries_max": event.tries_max,
                "enqueued_at": moment(event.at_us),
                "not_before": moment(event.not_before_us or None),
                **self._fresh(event, 1),
            }
        ]
        self.attempts[event.job_id] = []

    def _fresh(self, event: Any, life: int) -> Row:
        """A life that begins."""
        empty = ("reason", "result_bytes", "first_assigned_at", "ended_at", "worker_id", "error_type")
        more = ("error_message", "run_us", "closed_index", "closed_at", "closed_date")
        return {
            **dict.fromkeys((*empty, *more)),
            "life": life,
            "state": "queued",
            "began_at": moment(event.at_us),
            "attempts": 0,
            "starts": 0,
            "tries": 0,
            **self._seen(event),
        }

    @staticmethod
    def _seen(event: Any) -> Row:
        return {"last_index": event.index, "last_at": moment(event.at_us)}

    def _assign(self, event: Any) -> None:
        life = self.jobs[event.job_id][-1]
        life |= self._seen(event) | {"state": "inflight", "worker_id": event.worker_id}
        life["attempts"] += 1
        life["first_assigned_at"] = life["first_assigned_at"] or moment(event.at_us)
        empty = ("started", "ended_at", "ended_index", "outcome", "reason", "error_type", "error_message")
        self.attempts[event.job_id].append(
            {
                **dict.fromkeys((*empty, "tries", "held_us", "run_us", "late_ack_index")),
                **{
                    name: life[name]
                    for name in ("group", "job_id", "enqueue_index", "life", "client_id", "exec")
                },
                "attempt": event.attempt,
                "worker_id": event.worker_id,
                "assign_index": event.index,
                "assign_term": event.term,
                "ready_at": moment(event.ready_us),
                "assigned_at": moment(event.at_us),
                "wait_us": event.at_us - event.ready_us,
            }
        )

    def _ended(self, event: Any, outcome: str) -> Row:
        """End the attempt, if this does; returns the life."""
        life = self.jobs[event.job_id][-1]
        life |= self._seen(event)
        if event.fence is None:
            return life
        life["starts"] += event.started
        life["tries"] = event.tries
        attempt = self.attempts[event.job_id][-1]
        assert attempt["assign_index"] == event.fence[1]
        if attempt["outcome"] is not None:
            assert outcome == "done", "only an ack comes late"
            attempt["late_ack_index"] = event.index
            return life
        attempt |= {
            "started": event.started,
            "ended_at": moment(event.at_us),
            "ended_index": event.index,
            "outcome": outcome,
            "reason": getattr(event, "reason", None),
            "error_type": getattr(event, "error_type", None),
            "error_message": getattr(event, "error_message", None),
            "tries": event.tries,
            "held_us": event.held_us,
            "run_us": event.run_us,
        }
        return life

    def _queued_again(self, event: Any, outcome: str) -> Row:
        life = self._ended(event, outcome)
        life["state"] = "queued"
        return life

    def _fail_requeue(self, event: Any) -> None:
        life = self._queued_again(event, "failed" if event.counted else "snoozed")
        if event.counted:
            life |= {"error_type": event.error_type, "error_message": event.error_message}

    def _timeout_requeue(self, event: Any) -> None:
        life = self._queued_again(event, "timeout")
        life |= {"error_type": "Timeout", "error_message": "the handler ran over its time"}

    def _worker_down_requeue(self, event: Any) -> None:
        is_gone = event.reason == "gone"
        life = self._queued_again(event, "lost" if is_gone else "returned")
        if is_gone and event.started:
            text = f"{event.worker_id} went away while it ran"
            life |= {"error_type": "WorkerLost", "error_message": text}

    def _close(self, life: Row, event: Any) -> None:
        at = moment(event.at_us)
        assert at is not None
        life |= {"closed_index": event.index, "closed_at": at, "closed_date": at.date()}

    def _ack(self, event: Any) -> None:
        life = self._ended(event, "done")
        life |= {
            "state": "done",
            "result_bytes": event.result_bytes,
            "run_us": event.run_us,
            "ended_at": moment(event.at_us),
        }
        self._close(life, event)

    def _cancel(self, event: Any) -> None:
        life = self._ended(event, "cancelled")
        life |= {
            "state": "cancelled",
            "reason": event.why,
            "tries": event.tries,
            "ended_at": moment(event.at_us),
        }
        self._close(life, event)

    def _dlq(self, event: Any) -> None:
        life = self._ended(event, "dead")
        life |= {"state": "dead", "reason": event.reason, "ended_at": moment(event.at_us)}
        if event.error_type:
            life |= {"error_type": event.error_type, "error_message": event.error_message}

    def _redrive(self, event: Any, job_id: str) -> None:
        lives = self.jobs[job_id]
        self._close(lives[-1], event)
        lives.append(lives[-1] | self._fresh(event, lives[-1]["life"] + 1))

    def _drop(self, event: Any, job_id: str) -> None:
        life = self.jobs[job_id][-1]
        life |= self._seen(event)
        life |= {"state": "dropped", "reason": event.why, "ended_at": moment(event.at_us)}
        self._close(life, event)
