package main

import (
	"errors"
	"io"
	"testing"
	"time"
)

func TestUserCountsWhatIsNotEchoed(t *testing.T) {
	for name, step := range map[string]struct {
		heard              []message
		end                error
		echoed, lost, fail int
	}{
		"all echoed":            {[]message{{Seq: 1}, {Seq: 2}, {Seq: 3}}, io.EOF, 3, 0, 0},
		"one missing":           {[]message{{Seq: 1}, {Seq: 3}}, io.EOF, 2, 1, 0},
		"the last never echoed": {[]message{{Seq: 1}, {Seq: 2}}, io.EOF, 2, 1, 0},
		"the server saw a gap":  {[]message{{Seq: 1}, {Seq: 2, Error: "gap"}, {Seq: 3}}, io.EOF, 2, 1, 0},
		"an echo twice":         {[]message{{Seq: 1}, {Seq: 1}, {Seq: 2}, {Seq: 3}}, io.EOF, 3, 1, 0},
		"cut off":               {[]message{{Seq: 1}}, errors.New("reset"), 1, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			all := &users{tally: newTally()}
			one := &user{protocol: overGRPC, line: gone{}, tally: all.tally, over: make(chan struct{}), ended: all.remove}
			all.open = append(all.open, one)
			for range 3 {
				one.next()
			}
			for _, m := range step.heard {
				one.hear(m, time.Now())
			}
			one.finish(step.end)
			found := all.tally.report(time.Minute)
			if found.Sent != 3 || found.Echoed != step.echoed || found.Lost != step.lost || found.Failed != step.fail {
				t.Errorf("found %+v", found)
			}
			if len(all.open) != 0 {
				t.Error("it counts as open")
			}
		})
	}
}

// gone is a line that has been dropped.
type gone struct{}

func (gone) send(message) error        { return io.EOF }
func (gone) receive() (message, error) { return message{}, io.EOF }
func (gone) end()                      {}
func (gone) drop()                     {}
