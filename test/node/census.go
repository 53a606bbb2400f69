package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// Census is what there is in a node, by kind: "process", "mount", "link" (of the node's own
// network namespace), "netns", "pod" (links, addresses and nftables within a pod's namespace),
// "nftables" (tables, chains and rules), "device" (nodes in /dev of VMs), "cgroup", "lease", "snapshot", "domain" (files that libvirtd keeps of each), "secret" (that it keeps for disks), "target" (of tgtd, where that runs), and
// "file" (of the shim's folders: records, overlays, sockets). A test takes one before and one
// after, and compares.
type Census map[string][]string

// Diff returns what came and what went since before, as sorted lines like "+ link tap0". Processes
// are distinguished by their numbers, so that one that was replaced shows.
func (c Census) Diff(before Census) []string {
	var lines []string
	kinds := maps.Clone(c)
	maps.Copy(kinds, before)
	for kind := range kinds {
		came, went := tally(c[kind]), tally(before[kind])
		for item, n := range came {
			lines = append(lines, slices.Repeat([]string{"+ " + kind + " " + item}, max(0, n-went[item]))...)
		}
		for item, n := range went {
			lines = append(lines, slices.Repeat([]string{"- " + kind + " " + item}, max(0, n-came[item]))...)
		}
	}
	slices.Sort(lines)
	return lines
}

// byName is the census with processes distinguished by their names alone.
func (c Census) byName() Census {
	c = maps.Clone(c)
	var names []string
	for _, p := range c["process"] {
		_, name, numbered := strings.Cut(p, " ")
		if !numbered {
			name = p
		}
		names = append(names, name)
	}
	c["process"] = names
	return c
}

func tally(items []string) map[string]int {
	n := map[string]int{}
	for _, item := range items {
		n[item]++
	}
	return n
}

// Leftovers counts what there is in the node now. containerd must be up.
func (n *Node) Leftovers(ctx context.Context) (Census, error) {
	c := Census{}
	for kind, list := range map[string]func(context.Context) ([]string, error){
		"process":  n.processes,
		"mount":    n.mounts,
		"link":     n.links,
		"netns":    n.namespaces,
		"pod":      n.podNetworks,
		"nftables": n.rules,
		"device":   n.devices,
		"cgroup":   func(context.Context) ([]string, error) { return ownCgroups(n.o.Name) },
		"lease":    n.leases,
		"snapshot": n.snapshots,
		"domain":   n.domains,
		"secret":   n.secrets,
		"target":   n.targets,
		"file":     n.files,
	} {
		items, err := list(ctx)
		if err != nil {
			return nil, fmt.Errorf("count what is in node %s: %w", n.o.Name, err)
		}
		c[kind] = items
	}
	return c, nil
}

// root is a path of the machine that leads to a path of the node.
func (n *Node) root(path string) string { return fmt.Sprintf("/proc/%d/root%s", n.PID(), path) }

// processes are all of the node's but the commands that were entered from outside, which have no
// parent in it.
func (n *Node) processes(ctx context.Context) ([]string, error) {
	entries, err := os.ReadDir(n.root("/proc"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []string
	for _, e := range entries {
		fields := n.process(e.Name())
		// The first is about to become the container's own program, the second to end.
		for (strings.HasPrefix(fields["Name"], "runc:") || fields["Name"] == "nft") && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			fields = n.process(e.Name())
		}
		if fields["Pid"] == "" || fields["PPid"] == "0" && fields["Pid"] != "1" {
			continue
		}
		all = append(all, fields["Pid"]+" "+fields["Name"])
	}
	return all, ctx.Err()
}

// process is what /proc says of a process; nothing of one that has ended.
func (n *Node) process(pid string) map[string]string {
	fields := map[string]string{}
	status, err := os.ReadFile(n.root("/proc/" + pid + "/status"))
	if err != nil {
		return fields
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// devices are the nodes in /dev, which all nodes of a machine share, of VMs that this node's shim has logged.
func (n *Node) devices(context.Context) ([]string, error) {
	all, err := filepath.Glob("/dev/nodevirt-*-*")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	log := n.LogTail(Shim, math.MaxInt)
	return slices.DeleteFunc(all, func(path string) bool {
		return !strings.Contains(log, strings.Split(filepath.Base(path), "-")[1])
	}), nil
}

func (n *Node) mounts(context.Context) ([]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", n.PID()))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	var all []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			all = append(all, fields[4])
		}
	}
	return all, lines.Err()
}

// files are those of the shim's folders, but for the checkpoints' memory that is kept for the next VM, and for
// how pods' guests have ended, which outlives the pods.
func (n *Node) files(context.Context) ([]string, error) {
	all, err := n.walk(n.o.path("nodevirt"), n.o.run("nodevirt"))
	return slices.DeleteFunc(all, kept.MatchString), err
}

// kept matches what the shim keeps of checkpoints for minutes after its last VM, and of ends within its bound.
var kept = regexp.MustCompile(`^nodevirt/(checkpoints(/[0-9a-f]{64})?|ended(/[0-9A-Za-z-]+\.json)?)$`)

// domains are the files that libvirtd has of domains, so that it need not be up: their
// definitions, and what it holds of those that run. Its logs stay, as on any node.
func (n *Node) domains(context.Context) ([]string, error) {
	return n.walk(n.o.etc("libvirt", "qemu"), n.o.path("libvirt", "qemu"), n.o.run("libvirt", "qemu"))
}

// secrets are those that libvirtd was given, on disk or for as long as it runs.
func (n *Node) secrets(context.Context) ([]string, error) {
	return n.walk(n.o.etc("libvirt", "secrets"), n.o.run("libvirt", "secrets"))
}

// targets are the names of the disks that are served. A tgtd that a test has stopped is not waited for.
func (n *Node) targets(ctx context.Context) ([]string, error) {
	if s, err := n.state(Tgtd); err != nil || strings.HasPrefix(n.process(fmt.Sprint(s.PID))["State"], "T") {
		return nil, err
	}
	served, err := n.Targets(ctx)
	if errors.Is(err, iscsi.ErrUnavailable) {
		return nil, nil
	}
	var names []string
	for _, t := range served {
		names = append(names, t.Name)
	}
	return names, err
}

// walk lists all below folders of the node, which may be missing, and may be made by the first one who
// needs them. It sees what a test mounted there.
func (n *Node) walk(tops ...string) ([]string, error) {
	var all []string
	for _, top := range tops {
		err := filepath.WalkDir(n.root(top), func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went while we looked
			}
			if err == nil && path != n.root(top) {
				rel, _ := filepath.Rel(n.root(n.o.Dir), path)
				all = append(all, rel)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
	}
	return all, nil
}

// list is the names in a folder, which may be missing.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
