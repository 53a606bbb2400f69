package forks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Collect removes what no VM has used for five minutes. used reports whether a VM goes on, or went on,
// from memory with a checksum.
func (s *Store) Collect(used func(sum string) bool) error {
	s.mu.Lock()
	for k, e := range s.shared {
		if e.used = used(k.sum); e.used {
			e.last = time.Now()
		}
		if e.idle() && time.Since(e.last) > keep {
			s.drop(k, e)
		}
	}
	s.mu.Unlock()
	all, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		info, err := f.Info()
		if err != nil || used(f.Name()) || time.Since(info.ModTime()) < keep {
			continue
		}
		// The link of a container that has not started keeps the file for a restart of the shim.
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(s.dir, f.Name())))
	}
	return errors.Join(errs...)
}
