"""Payloads and errors are in memory until their jobs end: handing a job out, or failing it, makes no room."""

import msgspec

from rollmq.core.attempts import Outcome
from rollmq.core.effects import Accepted, Refused
from rollmq.core.intake import Submit
from tests.core.audit import audit
from tests.core.naming import T0_US
from tests.properties.hall import Hall


def test_running_jobs_count_toward_the_bytes_that_may_be_queued() -> None:
    hall = Hall()
    settings = msgspec.structs.replace(hall.machine.settings, queued_bytes_max=1_000)
    hall.leader.operate.set_settings(settings, by="ann", to=None)
    hall.worker("w", credit=100)
    for number in range(20):
        job_id = f"{T0_US // 1000:012x}7{number:019x}"
        hall.leader.intake.submit(Submit(job_id, "c", "e", payload=b"x" * 100), None)
        hall.leader.schedule()
    told = hall.leader.desk.take_effects()
    assert sum(isinstance(effect, Accepted) for effect in told) == 10
    refused = [effect for effect in told if isinstance(effect, Refused)]
    assert {effect.code for effect in refused} == {"queue_full"}
    job = next(iter(hall.machine.jobs.values()))
    assert job.fence is not None
    hall.leader.attempts.give_back("w", job.id, job.fence, "refused")
    assert hall.machine.inflight.size_bytes == 900
    assert hall.machine.queued_bytes == 100


def test_error_details_of_waiting_jobs_count_too() -> None:
    hall = Hall()
    settings = msgspec.structs.replace(hall.machine.settings, queued_bytes_max=1_000)
    hall.leader.operate.set_settings(settings, by="ann", to=None)
    hall.worker("w", credit=1)
    hall.submit("c", "e")
    (assigned,) = hall.told()
    fence = (assigned.event.term, assigned.event.index)
    failure = Outcome(assigned.event.job_id, fence, is_ok=False, error_detail=b"t" * 1_000)
    hall.leader.attempts.outcome("w", failure)
    audit(hall.machine)
    hall.submit("c", "e")
    assert len(hall.machine.jobs) == 2
    job_id = f"{T0_US // 1000:012x}7{99:019x}"
    hall.leader.intake.submit(Submit(job_id, "c", "e", payload=b"x"), None)
    (refused,) = [each for each in hall.leader.desk.take_effects() if isinstance(each, Refused)]
    assert refused.code == "queue_full"
