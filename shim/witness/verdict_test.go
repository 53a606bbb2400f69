package witness_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/witness"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		t    witness.Testimony
		want witness.Verdict
	}{
		{witness.Testimony{witness.Present, witness.Running, witness.Running}, witness.Runs},
		{witness.Testimony{witness.Present, witness.Silent, witness.Running}, witness.Runs},
		{witness.Testimony{witness.Present, witness.Ended, witness.Running}, witness.Disputed},
		{witness.Testimony{witness.Present, witness.Running, witness.Silent}, witness.Disputed},
		{witness.Testimony{witness.Present, witness.Running, witness.Ended}, witness.Disputed},
		{witness.Testimony{witness.Absent, witness.Running, witness.Running}, witness.Disputed},
		{witness.Testimony{witness.Absent, witness.Silent, witness.Running}, witness.Disputed},
		{witness.Testimony{witness.Absent, witness.Ended, witness.Running}, witness.Over},
		{witness.Testimony{witness.Absent, witness.Ended, witness.Silent}, witness.Over},
		{witness.Testimony{witness.Unknown, witness.Ended, witness.Ended}, witness.Disputed},
		{witness.Testimony{}, witness.Disputed},
	} {
		if got := witness.Judge(c.t); got != c.want || got.MayRelease() != (c.want == witness.Over) {
			t.Errorf("%+v: %v; want %v", c.t, got, c.want)
		}
	}
	for libvirt := witness.Silent; libvirt <= witness.Ended; libvirt++ {
		for record := witness.Silent; record <= witness.Ended; record++ {
			for _, p := range []witness.Presence{witness.Unknown, witness.Present} {
				if one := (witness.Testimony{p, libvirt, record}); witness.Judge(one).MayRelease() {
					t.Errorf("%+v: it may be released", one)
				}
			}
		}
	}
}
