package domain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Unborn is a domain of nodevirt without a QEMU process, because libvirtd was killed
// during its start. libvirt 9.0 then regards the domain as still starting, also
// after further restarts, and no call on it returns. To repair it, call
// [Unborn.Remove] while libvirtd doesn't run: the next libvirtd regards the domain
// as defined and not running.
type Unborn struct {
	Name string
	// Since is when libvirtd last wrote the file.
	Since time.Time

	file    string
	folders []string // created by libvirtd for QEMU
}

// domainStatus has the fields of libvirtd's file for an active domain that matter
// here. libvirtd writes the process id to the file before it lets QEMU begin: while
// the id is 0, there is no QEMU.
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

// FindUnborn returns the unborn domains in libvirtd's run folder (/run/libvirt). While
// libvirtd runs, the result may contain a domain that libvirtd is starting.
func FindUnborn(runDir string) ([]Unborn, error) {
	files, err := filepath.Glob(filepath.Join(runDir, "qemu", "*.xml"))
	if err != nil {
		return nil, fmt.Errorf("list libvirtd's domains: %w", err)
	}
	var all []Unborn
	for _, file := range files {
		u, found, err := readUnborn(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the domain has just ended
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
	s, ok, err := readStatus(file)
	if err != nil || !ok || s.Domain.Metadata.VM == nil || s.Reason != "starting up" || s.PID != "0" {
		return u, false, err
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

// readStatus reads libvirtd's file of an active domain. It returns false if libvirtd would ignore the file.
func readStatus(file string) (s domainStatus, ok bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, false, err
	}
	if err := xml.Unmarshal(text, &s); err != nil {
		return s, false, nil //nolint:nilerr // libvirtd would ignore it too
	}
	return s, true, nil
}

// domainFolder is how libvirtd names a folder for a running domain: domain-ID-NAME, and a folder of sockets
// from libvirt 11 on ID-NAME.
var domainFolder = regexp.MustCompile(`^(domain-)?[0-9]+-.`)

func isDomainFolder(path string) bool {
	return filepath.IsAbs(path) && domainFolder.MatchString(filepath.Base(path))
}

// Remove removes the state of the start for the next libvirtd. No libvirtd may run
// during the call.
func (u Unborn) Remove() error {
	var errs []error
	for _, dir := range u.folders {
		errs = append(errs, os.RemoveAll(dir))
	}
	// The fork of libvirtd that should become QEMU waits for libvirtd, and ends without it.
	if err := os.Remove(strings.TrimSuffix(u.file, ".xml") + ".pid"); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, os.Remove(u.file))...); err != nil {
		return fmt.Errorf("remove the state of domain %s: %w", u.Name, err)
	}
	return nil
}
