//go:build cluster

package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// guests counts the QEMU processes of VMs, by their names, on all nodes of the cluster: what really runs,
// whatever the API says.
func guests() (map[string]int, error) {
	all, err := processes("qemu-system-x86_64")
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, p := range all {
		_, domain, _ := strings.Cut(p.command, "guest=")
		if name := vmOf(domain); name != "" && ours(p.groups) {
			count[name]++
		}
	}
	return count, nil
}

// process is one of the machine.
type process struct {
	pid             int
	command, groups string // as in /proc
}

// processes returns those of a program.
func processes(program string) (all []process, err error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || filepath.Base(strings.SplitN(string(text), "\x00", 2)[0]) != program {
			continue // it has ended, or is another program
		}
		folder := filepath.Dir(path)
		groups, err := os.ReadFile(filepath.Join(folder, "cgroup"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return nil, err
		}
		all = append(all, process{pid, string(text), string(groups)})
	}
	return all, nil
}

// vmOf returns the name of the VM that a domain's name begins with, like
// default_virt-launcher-NAME-abcde_compute; empty if it is of no VM.
func vmOf(domain string) string {
	after, found := strings.CutPrefix(domain, "default_virt-launcher-")
	pod, _, _ := strings.Cut(after, "_")
	at := strings.LastIndexByte(pod, '-')
	if !found || at < 0 {
		return ""
	}
	return pod[:at]
}

// ours reports whether cgroups are those of a node of the cluster.
func ours(groups string) bool {
	return slices.ContainsFunc(suite.cgroups, func(name string) bool { return strings.Contains(groups, "/"+name+"/") })
}

// watchTwo fails the test if there are ever two guests of a VM, until the test ends or stop is called.
func watchTwo(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	looks := 0
	watch.Go(func() {
		for ctx.Err() == nil {
			count, err := guests()
			if err != nil {
				t.Error(err)
				return
			}
			for name, n := range count {
				if n > 1 {
					t.Errorf("%d guests of %s run", n, name)
					return
				}
			}
			looks++
			time.Sleep(100 * time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watch.Wait()
		if looks == 0 {
			t.Error("no sample was taken")
		}
	})
	t.Cleanup(stop)
	return stop
}

// guestRuns returns an error unless one guest of a VM runs.
func guestRuns(name string) error {
	count, err := guests()
	if err == nil && count[name] != 1 {
		err = fmt.Errorf("%d guests of %s run", count[name], name)
	}
	return err
}
