"""Bad days of the controller, each lived through: in virtual time where it takes minutes or hours, on local servers and
the real API server else. What is tested elsewhere:

| bad day | test |
|---|---|
| killed between any two steps, in 1,000 random histories | tests/properties/test_histories.py |
| watch dropped, 410, silent, restored from a backup | tests/adapters/kubernetes/test_watch.py |
| API server down for longer than its cache may be old | tests/adapters/kubernetes/test_watch.py |
| slow answers, lost answers, 409, 429 with Retry-After | tests/adapters/kubernetes/test_perform.py, test_loop.py |
| two leaders, one of them frozen and waking up | tests/e2e/test_leader.py |
| conditions False, of older generations, unknown (Gated) | tests/core/test_resize.py, tests/core/test_ladder.py |
| Deferred again an hour later | tests/core/test_ladder.py |
| a recommender that never returns | tests/test_loop.py |
| a person resizes | tests/e2e/test_other_sizers.py |
"""
