package domain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Unborn is a domain of nodevirt's whose start a libvirtd that was killed did
// not bring as far as a QEMU process. libvirt 9.0 then takes the domain for one
// that is still being started, across all its restarts: no call on it comes to
// an end. The way out is [Unborn.Remove] while libvirtd doesn't run; the next
// one knows the domain as defined and not running.
type Unborn struct {
	Name string
	// Since is when libvirtd wrote the file last.
	Since time.Time

	file    string
	folders []string // what libvirtd had made for QEMU
}

// domainStatus is the part of libvirtd's file on an active domain that is of
// interest here. libvirtd writes the file again with the process id before it
// lets QEMU begin: while it says 0, there is no QEMU.
type domainStatus struct {
	Reason string    `xml:"reason,attr"`
	PID    string    `xml:"pid,attr"`
	Lib    statusDir `xml:"libDir"`
	Target statusDir `xml:"channelTargetDir"`
	Domain struct {
		Name     string `xml:"name"`
		Metadata struct {
			VM *struct{} `xml:"https://nodevirt.io/domain/1 vm"`
		} `xml:"metadata"`
	} `xml:"domain"`
}

type statusDir struct {
	Path string `xml:"path,attr"`
}

// FindUnborn looks into libvirtd's run folder (/run/libvirt). While libvirtd
// runs, a domain that it is starting right now is among the found for a moment.
func FindUnborn(runDir string) ([]Unborn, error) {
	files, err := filepath.Glob(filepath.Join(runDir, "qemu", "*.xml"))
	if err != nil {
		return nil, fmt.Errorf("list libvirtd's domains: %w", err)
	}
	var all []Unborn
	for _, file := range files {
		u, found, err := readUnborn(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it ended while we looked
		}
		if err != nil {
			return nil, fmt.Errorf("read libvirtd's domains: %w", err)
		}
		if found {
			all = append(all, u)
		}
	}
	return all, nil
}

func readUnborn(file string) (u Unborn, found bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return u, false, err
	}
	var s domainStatus
	if err := xml.Unmarshal(text, &s); err != nil {
		return u, false, nil //nolint:nilerr // nor would libvirtd take it for a domain's
	}
	if s.Domain.Metadata.VM == nil || s.Reason != "starting up" || s.PID != "0" {
		return u, false, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return u, false, err
	}
	folders := []string{s.Lib.Path, s.Target.Path}
	return Unborn{
		Name: s.Domain.Name, Since: info.ModTime(), file: file,
		folders: slices.DeleteFunc(folders, func(dir string) bool { return !isDomainFolder(dir) }),
	}, true, nil
}

// isDomainFolder reports whether a path is one that libvirtd makes for a domain
// that it starts, and removes at its end: domain-ID-NAME.
func isDomainFolder(path string) bool {
	return filepath.IsAbs(path) && strings.HasPrefix(filepath.Base(path), "domain-")
}

// Remove makes the next libvirtd forget the start. None may run meanwhile.
func (u Unborn) Remove() error {
	var errs []error
	for _, dir := range u.folders {
		errs = append(errs, os.RemoveAll(dir))
	}
	// Of the fork that was to become QEMU: it waits for libvirtd's word and ends without.
	if err := os.Remove(strings.TrimSuffix(u.file, ".xml") + ".pid"); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, os.Remove(u.file))...); err != nil {
		return fmt.Errorf("forget the start of domain %s: %w", u.Name, err)
	}
	return nil
}
