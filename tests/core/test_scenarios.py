"""Recorded scenarios of series, Prometheus, numbers, and the life of a resize and a migration, each with a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCENARIOS = {
    "RSZ-01": "core/test_ladder.py::test_what_the_server_refuses_is_named_and_not_repeated_for_a_while",
    "RSZ-02": "core/test_ladder.py::test_what_the_kubelet_is_busy_with_is_left_to_it_however_long",
    "RSZ-03": "core/test_decreases.py::test_1_33_lowers_no_memory_limit",
    "RSZ-04": "core/test_ladder.py::test_a_static_cpu_manager_is_recognised_by_the_kubelets_words",
    "RSZ-05": "core/test_ladder.py::test_room_that_a_kubelet_does_not_see_is_waited_for_without_asking_again",
    "RSZ-06": "core/test_ladder.py::test_a_resize_past_its_deadline_is_given_up_and_the_spec_goes_back",
    "RSZ-07": "core/test_pairing.py::test_rsz_07_requests_alone_cannot_move_in_a_guaranteed_pod",
    "RSZ-08": "core/test_pairing.py::test_rsz_08_an_absent_limit_stays_absent",
    "RSZ-09": "bad_days/test_api_server.py::test_after_two_conflicts_the_third_ask_is_computed_from_the_fresh_pod",
    "RSZ-10": "adapters/telemetry/test_unfinished.py::test_what_is_asked_for_and_what_is_in_force_are_two_series",
    "MIG-01": "e2e/test_migrations.py::test_pods_that_can_land_nowhere_stay_until_they_can_and_some_are_never_moved",
    "MIG-02": "e2e/test_migrations.py::"
    "test_nothing_is_evicted_while_a_budget_forbids_it_and_what_it_forbids_costs_nobody_else_a_move",
    "MIG-02, back-off": "core/test_migration.py::test_what_a_budget_blocks_is_tried_less_and_less_often",
    "MIG-02, one clock": "core/test_ladder.py::test_one_clock_runs_on_when_deferred_and_infeasible_alternate",
    "MIG-03": "e2e/test_migrations.py::"
    "test_a_controller_killed_right_after_the_eviction_is_followed_by_one_that_resizes_and_evicts_nothing",
    "MIG-03, drift": "cli/test_drift.py::test_mig_03_plan_and_explain_say_it_of_a_pod_that_was_resized_in_place",
    "MIG-04": "core/test_landing.py::test_room_is_what_the_largest_of_desired_allocated_and_actual_leaves",
    "MIG-05": "e2e/test_migrations.py::test_fifty_that_are_due_at_once_go_two_at_a_time",
    "ACC-01": "e2e/test_main_job.py::test_usage_rises_and_falls_and_the_pods_follow_in_place",
    "ACC-02": "core/test_ladder.py::test_an_old_episode_shortens_nothing",
    "ACC-03": "core/test_pairing.py::test_acc_03_best_effort_is_given_nothing",
    "ACC-04": "core/test_decreases.py::test_a_limit_at_or_below_what_is_in_use_with_page_cache_is_held",
    **{
        f"SER-{number}": f"adapters/prometheus/test_series_scenarios.py::test_ser_{number}_{name}"
        for number, name in {
            "01": "usage_alone_is_enough",
            "02": "what_kube_state_metrics_says_is_of_its_pods_and_not_its_own",
            "05": "a_container_that_came_back_is_counted_once",
            "06": "cgroups_of_pods_and_pause_containers_are_left_out",
            "07": "labels_that_are_dropped_are_not_missed",
            "08": "a_pair_counts_as_one",
            "10": "a_pod_that_moved_has_one_timeline",
            "11": "owners_of_any_kind_and_none",
        }.items()
    },
    "SER-03": "adapters/prometheus/test_signals.py::test_ser_03_gpus_are_their_users_and_not_the_exporters",
    "SER-04": "adapters/prometheus/test_signals.py::test_ser_04_parts_of_a_gpu_are_told_apart",
    "SER-09": "adapters/prometheus/test_clusters.py::test_ser_09_two_clusters_hold_until_one_is_named",
    "SER-10, incarnations": "core/test_consult.py::"
    "test_samples_of_a_pod_that_had_the_name_before_are_told_from_its_own",
    "PRM-01": "core/test_situation.py::test_prm_01_a_kill_is_acted_on_once",
    "PRM-02": "core/test_situation.py::test_prm_02_gpu_memory_that_ran_out_does_not_raise_memory",
    **{
        f"PRM-{number}": f"adapters/prometheus/test_server_scenarios.py::test_prm_{number}_{name}"
        for number, name in {
            "03": "2000_pods_and_two_weeks_are_asked_for_in_moderation",
            "04": "a_look_back_is_asked_for_to_the_second",
            "05": "two_weeks_in_steps_of_30_s_are_asked_for_in_parts_that_meet",
            "10": "nothing_but_queries_is_asked",
        }.items()
    },
    "PRM-05, refused": "policies/test_policyfile.py::test_refused",
    "PRM-07": "adapters/prometheus/test_signals.py::test_prm_07_a_short_peak_is_seen",
    "PRM-08": "adapters/prometheus/test_signals.py::test_prm_08_pressure_that_is_not_counted_is_not_none",
    "PRM-09": "adapters/prometheus/test_access.py::test_prm_09_without_a_tenant_the_setting_is_named",
    "PRM-11, counted": "adapters/prometheus/test_traffic.py::test_prm_11_samples_that_are_no_numbers_are_counted",
    "PRM-12": "adapters/prometheus/test_traffic.py::"
    "test_prm_12_a_query_that_is_never_answered_is_given_up_and_costs_no_one_else",
    "PRM-13, alert": "adapters/telemetry/test_alerts.py::"
    "test_prm_13_three_turns_without_usage_make_an_alert_and_one_does_not",
    "PRM-06": "core/test_doubted.py::test_prm_06_a_rate_window_of_one_scrape_is_named_with_both_numbers",
    "PRM-11": "core/test_doubted.py::test_prm_11_what_is_no_number_is_left_out",
    "PRM-13": "bad_days/test_prometheus.py::test_prm_13_an_hour_without_usage_changes_nothing_and_ends_by_itself",
    "PRM-13, half of the pods": "core/test_doubted.py::test_prm_13_half_of_the_pods_lower_nothing_and_raise",
    **{
        f"NUM-{number}": f"recommenders/test_windows.py::test_num_{number}_{name}"
        for number, name in {
            "01": "the_peak_of_a_start_is_covered",
            "02": "max_covers_three_samples_of_90_days_and_p99_does_not",
            "02_a": "percentile_of_a_window_says_how_many_samples_are_above_it",
            "05": "a_day_of_data_is_no_reason_for_a_multiple",
        }.items()
    },
    "NUM-03": "core/test_choosing_the_number.py::test_num_03_a_percentile_is_the_request_whatever_limits_do",
    "NUM-03, ratio": "core/test_pairing.py::test_num_03_the_ratio_concerns_limits_alone",
    "NUM-04": "core/test_choosing_the_number.py::test_num_04_each_pod_gets_its_own_size",
    "NUM-06": "core/test_choosing_the_number.py::test_num_06_no_node_that_is_large_enough_means_no_patch",
    "ACC-10": "e2e/test_other_sizers.py::test_what_a_horizontal_one_scales_on_is_left_alone",
}


@pytest.mark.parametrize("where", SCENARIOS.values(), ids=list(SCENARIOS))
def test_a_scenario_has_its_test(where: str) -> None:
    file, _, name = where.partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text()


def test_every_scenario_is_named_but_those_of_acceptance(shared: Path) -> None:
    text = (shared / "cases" / "scenarios.md").read_text()
    recorded = set(re.findall(r"^\*\*((?:SER|PRM|RSZ|MIG|NUM)-\d+)", text, re.MULTILINE))
    assert {name[:3] for name in recorded} == {"SER", "PRM", "RSZ", "MIG", "NUM"}
    assert recorded <= SCENARIOS.keys()
