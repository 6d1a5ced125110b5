"""The life of Plans: recorded, held back, approved, carried out, replaced, pruned."""

from tests.unit.operator.controllers.plans.scene import scene_of


async def test_in_mode_auto_a_plan_is_recorded_and_carried_out_at_once() -> None:
    async with scene_of() as scene:
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Done"}
        assert scene.plans()["inferno-1"]["status"]["by"] == "mode Auto"


async def test_an_optimization_that_changes_nothing_writes_no_plan() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(optimize=False, interval=60)
        await scene.optimize()
        await scene.advance()
        scene.later(seconds=61)
        before = list(scene.cluster.writes)
        await scene.optimize()
        await scene.advance()

        assert scene.cluster.writes[len(before) :] == ["status Optimizer inferno"]


async def test_in_mode_approve_nothing_changes_until_a_person_approves() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode="Approve")
        await scene.optimize()
        await scene.advance()

        assert scene.desired() == {}
        assert scene.phases() == {"inferno-1": "Proposed"}
        assert "Plan inferno-1 waits" in scene.optimized()

        scene.answer("inferno-1", "Approved")
        await scene.advance()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Done"}
        assert scene.plans()["inferno-1"]["status"]["by"] == "ann"
