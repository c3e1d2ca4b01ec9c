package main

import "testing"

func TestLedgerSeesGapsAndRepeats(t *testing.T) {
	var account ledger
	for _, step := range []struct {
		seq, lost uint64
		fails     bool
	}{
		{1, 0, false}, {2, 0, false}, {5, 2, true}, {6, 0, false}, {6, 1, true}, {3, 1, true}, {7, 0, false}, {0, 1, true},
	} {
		answer, lost := account.take(step.seq)
		if answer.Seq != step.seq || lost != step.lost || (answer.Error != "") != step.fails {
			t.Errorf("%d: answered %+v, lost %d", step.seq, answer, lost)
		}
	}
}
