//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// filling is a folder that takes up the shim's disk, as the machine sees it.
func filling() string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", suite.PID()), suite.Dir(), "nodevirt", "filling")
}

// fill takes all of a disk's space or inodes but for some.
func fill(what string, room int) error {
	if err := os.Mkdir(filling(), 0o700); err != nil {
		return err
	}
	if what == "inodes" {
		return fillInodes(room)
	}
	f, err := os.Create(filepath.Join(filling(), "0"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<12)
	size := 0
	for {
		n, err := f.Write(block)
		size += n
		if errors.Is(err, syscall.ENOSPC) {
			return f.Truncate(int64(max(0, size-room)))
		}
		if err != nil {
			return err
		}
	}
}

func fillInodes(room int) error {
	var names []string
	for {
		name := filepath.Join(filling(), strconv.Itoa(len(names)))
		err := os.WriteFile(name, nil, 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, name := range names[max(0, len(names)-room):] {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// empty gives the disk back.
func empty() error { return os.RemoveAll(filling()) }
