package main

import "fmt"

// ledger is one session's account of the sequence that its user sends.
type ledger struct {
	last uint64
}

// take enters a message. lost: how many are missing before it, or 1 if it was there before; then the answer has an error.
func (l *ledger) take(seq uint64) (answer message, lost uint64) {
	answer.Seq = seq
	switch {
	case seq == l.last+1:
	case seq > l.last:
		lost = seq - l.last - 1
		answer.Error = fmt.Sprintf("%d came after %d", seq, l.last)
	default:
		answer.Error = fmt.Sprintf("%d came again, after %d", seq, l.last)
		return answer, 1
	}
	l.last = seq
	return answer, lost
}
