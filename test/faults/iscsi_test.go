//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// overISCSI has the pod's disk served by tgtd.
func (p *pod) overISCSI() {
	p.config.Annotations[vmspec.AnnotationDiskMode] = string(vmspec.ModeISCSI)
}

// killView kills what shows the pod's disk as a raw file, if there is such a process now.
func (p *pod) killView(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(suite.Dir(), "run/nodevirt/views", p.container+".*", "pid"))
	if err != nil || len(files) == 0 {
		return err
	}
	text, err := os.ReadFile(files[0])
	if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
		_, _ = suite.Output(ctx, "kill", "-9", f[0]) // it may have ended
	}
	return nil
}

// served is a steady guest whose disk is served to it.
type served struct {
	*steady
	written int
}

// keeps has the guest write something to its disk and read it again.
func (s *served) keeps(ctx context.Context) error {
	s.written++
	url, text := "http://"+s.ip+"/cgi-bin/disk", fmt.Sprintf("kept %d", s.written)
	if _, err := suite.Fetch(ctx, http.MethodPost, url, text); err != nil {
		return fmt.Errorf("guest %s: write to its disk: %w", s.name, err)
	}
	got, err := suite.Fetch(ctx, http.MethodGet, url, "")
	if err == nil && strings.TrimSpace(got) != text {
		err = fmt.Errorf("%q was written, %q is read", text, got)
	}
	if err != nil {
		return fmt.Errorf("guest %s: read its disk: %w", s.name, err)
	}
	return nil
}

// secrets are those that libvirtd has in memory alone, for disks that are served.
func secrets(ctx context.Context) (all []string, err error) {
	text, err := suite.Output(ctx, "virsh", "--connect", "qemu:///system", "secret-list")
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "iscsi" {
			all = append(all, f[0])
		}
	}
	slices.Sort(all)
	return all, err
}

// sameSecrets returns an error that lists the secrets that came or went.
func sameSecrets(before []string) func(context.Context) error {
	return func(ctx context.Context) error {
		now, err := secrets(ctx)
		if err == nil && !slices.Equal(before, now) {
			err = fmt.Errorf("secrets (-before +now):\n%s", cmp.Diff(before, now))
		}
		return err
	}
}
