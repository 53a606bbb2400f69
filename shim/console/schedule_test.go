package console

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func named(ids ...string) (slots []*slot) {
	for _, id := range ids {
		f := &follower{Console: Console{ID: id}}
		f.slot.console = f
		slots = append(slots, &f.slot)
	}
	return slots
}

// A console that always has more takes one turn in a round of all.
func TestScheduleIsFair(t *testing.T) {
	s := newSchedule()
	for _, p := range named("endless", "b", "c") {
		s.in(p, 0)
	}
	var order []string
	for range 7 {
		<-s.ready
		f := s.pop()
		order = append(order, f.ID)
		if f.ID == "endless" || len(order) == 2 {
			s.in(&f.slot, 0)
		}
	}
	if want := []string{"endless", "b", "c", "endless", "b", "endless", "endless"}; !slices.Equal(order, want) {
		t.Errorf("turns %v, want %v", order, want)
	}
}

func TestScheduleWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule()
		begin := time.Now()
		next := func() time.Duration {
			<-s.ready
			if s.pop() == nil {
				t.Fatal("ready, and no console")
			}
			return time.Since(begin)
		}
		p := named("a")[0]
		s.in(p, time.Second)
		s.in(p, gather)
		s.in(p, time.Minute)
		if at := next(); at != gather {
			t.Errorf("the turn came after %v, want the earliest, %v", at, gather)
		}
		s.in(p, time.Minute)
		s.in(p, 0)
		if at := next(); at != gather {
			t.Errorf("the turn at once came after %v", at)
		}
		s.in(p, time.Second)
		s.leave(p)
		s.in(p, 0)
		time.Sleep(time.Hour)
		if f := s.pop(); f != nil {
			t.Errorf("%s has left and got a turn", f.ID)
		}
	})
}
