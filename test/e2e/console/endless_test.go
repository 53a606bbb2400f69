package console

import (
	"os"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// testWithoutEnd has a guest print without end. It fills no disk, and others are heard.
func (s *suite) testWithoutEnd(t *testing.T) {
	const word = "and so on "
	endless := s.start(t, "endless", s.sector(t, "endless", guest.BootSector(strings.Repeat(word, 8), guest.Repeat)), "")
	endless.says(word)
	aside := endless.log + ".1" // where the limit puts a log that is not rotated
	for i := 0; ; i++ {
		other := s.start(t, "other", s.sector(t, "other", guest.BootSector("it is me", guest.Halt)), "")
		other.says("^it is me$")
		if _, held := endless.printed(); held > maxLag {
			t.Fatalf("the console's file takes %d bytes of the disk", held)
		}
		if _, err := os.Stat(aside); err == nil && i > 0 {
			break
		}
		size, _ := endless.printed()
		wait.Until(t, "it goes on", func() bool { now, _ := endless.printed(); return now > size+1<<20 })
	}
	for _, path := range []string{aside, endless.log, endless.rotate(0)} {
		if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
			t.Errorf("%s has %d bytes", path, info.Size())
		}
	}
	endless.says(word)
	if out := endless.crictl("logs", "--tail", "2", endless.id); strings.Count(out, word) < 8 {
		t.Errorf("crictl logs shows %q", out)
	}
}
