package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Ended is how the guest of a pod has ended here. It outlives the container's record: a pod has one guest, and an API
// server that went back in time has the kubelet start an ended one again.
type Ended struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// Departed reports whether a migration has taken the guest, or may have.
func (e Ended) Departed() bool {
	_, ok := condition.ParseDeparture(e.Reason, e.Message)
	return ok
}

// maxEnded bounds the ends that are kept.
const maxEnded = 10000

// podUID is what a pod's UID may be, which becomes the name of a file.
var podUID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

func (s *Store) endedDir() string { return filepath.Join(s.root, "ended") }

// PutEnded records how the guest of a pod has ended. It drops the oldest ends beyond a bound.
func (s *Store) PutEnded(uid string, e Ended) error {
	if !podUID.MatchString(uid) {
		return fmt.Errorf("record the end of a pod's guest: the UID %.64q is none", uid)
	}
	if err := os.MkdirAll(s.endedDir(), 0o700); err != nil {
		return fmt.Errorf("record the end of a pod's guest: %w", err)
	}
	e.Version = Version
	if err := write(filepath.Join(s.endedDir(), uid+".json"), e); err != nil {
		return err
	}
	return s.pruneEnded(maxEnded)
}

// EndedOf returns how the guest of a pod has ended here; found is false if that is not known.
func (s *Store) EndedOf(uid string) (e Ended, found bool, _ error) {
	if !podUID.MatchString(uid) {
		return e, false, nil
	}
	e, err := read[Ended](filepath.Join(s.endedDir(), uid+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	return e, err == nil, err
}

// pruneEnded drops the oldest ends if there are too many.
func (s *Store) pruneEnded(most int) error {
	entries, err := os.ReadDir(s.endedDir())
	if err != nil || len(entries) <= most {
		return err
	}
	type end struct {
		name string
		at   time.Time
	}
	var all []end
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			all = append(all, end{entry.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b end) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var errs []error
	// A tenth more than needed goes, so that not each end reads all times.
	for _, one := range all[:min(len(all), len(entries)-most+most/10)] {
		errs = append(errs, ignoreAbsent(os.Remove(filepath.Join(s.endedDir(), one.name))))
	}
	return errors.Join(errs...)
}
