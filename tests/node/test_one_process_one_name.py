"""A process has one name for its peers, whatever it does: messages under another one are a forerunner's."""

from rollmq.node.serve import ServeOptions, _identity
from rollmq.store.node_file import Identity


def test_a_process_that_waited_for_its_group_serves_under_the_same_name() -> None:
    """Who met it while it waited, a moment too late, dropped whatever it said as a member: when the
    leader's cable was pulled, the two that were left never elected another."""
    waiting = Identity(node_id="a" * 32, group="")
    member = Identity(node_id="a" * 32, group="b" * 32, founders=("a" * 32,))
    options = ServeOptions(port=5000)
    assert _identity(options, waiting).life == _identity(options, member).life != ""
    assert ServeOptions(port=5000).life != options.life
