package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Census is what there is in a node, by kind: "process", "mount", "link" (of the node's own
// network namespace), "netns", "nftables", "cgroup", "lease", "snapshot", and "file" (of the
// shim's folders). A test takes one before and one after, and compares.
type Census map[string][]string

// Diff tells what came and what went since before, as sorted lines like "+ link tap0". Processes
// are told apart by their numbers, so that one that was replaced shows.
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
		"nftables": n.tables,
		"cgroup":   func(context.Context) ([]string, error) { return cgroups(n.o.Name) },
		"lease":    n.leases,
		"snapshot": n.snapshots,
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
func (n *Node) processes(context.Context) ([]string, error) {
	entries, err := os.ReadDir(n.root("/proc"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []string
	for _, e := range entries {
		status, err := os.ReadFile(n.root("/proc/" + e.Name() + "/status"))
		if err != nil {
			continue // no process, or it ended meanwhile
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			fields[key] = strings.TrimSpace(value)
		}
		if fields["Pid"] == "" || fields["PPid"] == "0" && fields["Pid"] != "1" {
			continue
		}
		all = append(all, fields["Pid"]+" "+fields["Name"])
	}
	return all, nil
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

func (n *Node) links(context.Context) (all []string, err error) {
	ns, err := netns.GetFromPid(n.PID())
	if err != nil {
		return nil, fmt.Errorf("find network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		all = append(all, l.Type()+" "+l.Attrs().Name)
	}
	return all, nil
}

func (n *Node) namespaces(context.Context) ([]string, error) { return list(n.o.run("netns")) }

func (n *Node) tables(ctx context.Context) ([]string, error) {
	out, err := n.Output(ctx, "nft", "list", "tables")
	return strings.Split(strings.TrimSpace(out), "\n"), err
}

func (n *Node) leases(ctx context.Context) (all []string, err error) {
	err = n.withContainerd(ctx, func(ctx context.Context, c *containerd.Client) error {
		leases, err := c.LeasesService().List(ctx)
		for _, l := range leases {
			all = append(all, l.ID)
		}
		return err
	})
	return all, err
}

// snapshots are those that run or are viewed; what images were unpacked to stays with them.
func (n *Node) snapshots(ctx context.Context) (all []string, err error) {
	err = n.withContainerd(ctx, func(ctx context.Context, c *containerd.Client) error {
		return c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, s snapshots.Info) error {
			if s.Kind != snapshots.KindCommitted {
				all = append(all, s.Name)
			}
			return nil
		})
	})
	return all, err
}

// withContainerd calls do with a client and the namespace of the CRI's images and containers.
func (n *Node) withContainerd(ctx context.Context, do func(context.Context, *containerd.Client) error) (err error) {
	c, err := containerd.New(n.ContainerdSocket())
	if err != nil {
		return fmt.Errorf("reach containerd: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := do(namespaces.WithNamespace(ctx, "k8s.io"), c); err != nil {
		return fmt.Errorf("ask containerd: %w", err)
	}
	return nil
}

// files are those of the shim's folders.
func (n *Node) files(context.Context) ([]string, error) {
	var all []string
	for _, top := range []string{n.o.path("nodevirt"), n.o.run("nodevirt")} {
		err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went while we looked
			}
			if err == nil {
				rel, _ := filepath.Rel(n.o.Dir, path)
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
