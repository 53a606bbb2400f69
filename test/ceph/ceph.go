// Package ceph runs a small Ceph in a development node: one monitor and one OSD of Debian's packages, and
// one pool for RBD images. `make test-ceph` installs these packages.
//
// It owns the cluster's daemons, keys and files, all below one folder. It needs neither systemd, nor
// /etc/ceph, nor a manager daemon, nor an address that the node does not have. A node has one cluster at
// most. What clients do with images is the caller's.
package ceph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/node"
)

// The node's components; see [node.Node.Kill] and [node.Node.Resume].
const (
	Monitor = "ceph-mon"
	OSD     = "ceph-osd"
)

// loopback is an address of the node that nothing else in it uses.
const loopback = "127.0.0.9"

const (
	// Address is where a node's own clients reach the monitor.
	Address = loopback + port
	// Network is for the shim's disks.ceph_networks: the monitor and the OSD.
	Network = loopback + "/32"
	// Pool is the only pool.
	Pool = "vms"
	// User may use all images of the pool.
	User = "guests"
)

const port = ":3300"

// size is the OSD's, in bytes. Its file is sparse.
const size = 2 << 30

// patience bounds the end of a daemon.
const patience = time.Minute

// Cluster is a Ceph that runs in a node.
type Cluster struct {
	// Key is the User's, as "ceph auth print-key" prints it.
	Key string

	node    *node.Node
	dir     string
	address string
}

// ForTest starts a cluster in a node, and ends and removes it with the test.
func ForTest(t testing.TB, n *node.Node) *Cluster {
	t.Helper()
	return ForTestAt(t, n, loopback)
}

// ForTestAt is as ForTest, with daemons at an address of the node that others reach.
func ForTestAt(t testing.TB, n *node.Node, address string) *Cluster {
	t.Helper()
	needs.Parts(t, "Ceph in a development node")
	c, err := startAt(t.Context(), n, t.TempDir(), address)
	if c != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(n.LogTail(Monitor, 20), n.LogTail(OSD, 20))
			}
			if err := c.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("stop Ceph: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Start starts a new cluster, whose files are in an existing, empty folder. The caller stops it, also
// after an error, unless the cluster is nil, and then removes the folder.
func Start(ctx context.Context, n *node.Node, dir string) (*Cluster, error) {
	return startAt(ctx, n, dir, loopback)
}

func startAt(ctx context.Context, n *node.Node, dir, address string) (*Cluster, error) {
	c := &Cluster{node: n, dir: dir, address: address}
	if err := c.start(ctx); err != nil {
		return c, fmt.Errorf("start Ceph: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	// The monitor's files hold all keys.
	if err := os.Chmod(c.dir, 0o700); err != nil {
		return err
	}
	id, osd := uuid.NewString(), uuid.NewString()
	for _, dir := range []string{"mon", "osd"} {
		if err := os.Mkdir(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.config(), []byte(config(c.dir, id, c.address)), 0o600); err != nil {
		return err
	}
	if err := c.run(ctx, c.keys()...); err != nil {
		return err
	}
	err := c.run(ctx,
		[]string{"monmaptool", "--create", "--addv", "a", "[v2:" + c.address + port + "]", "--fsid", id, c.path("monmap")},
		[]string{"ceph-mon", "-c", c.config(), "--mkfs", "-i", "a", "--monmap", c.path("monmap"), "--keyring", c.path("keyring")},
	)
	if err != nil {
		return err
	}
	if err := c.node.Add(ctx, c.monitor()); err != nil {
		return err
	}
	err = c.run(ctx,
		c.ceph("osd", "new", osd, "0"),
		[]string{"ceph-osd", "-c", c.config(), "-i", "0", "--mkfs", "--osd-uuid", osd},
	)
	if err != nil {
		return err
	}
	if err := c.node.Add(ctx, c.osd()); err != nil {
		return err
	}
	if err := c.run(ctx,
		c.ceph("osd", "pool", "create", Pool, "8"),
		c.ceph("osd", "pool", "application", "enable", Pool, "rbd"),
	); err != nil {
		return err
	}
	c.Key, err = c.output(ctx, "ceph-authtool", c.path("keyring"), "--name", "client."+User, "--print-key")
	return err
}

// keys are the commands that make the keys of all of the cluster, which the monitor reads once. The OSD
// reads its own.
func (c *Cluster) keys() [][]string {
	all := c.path("keyring")
	return [][]string{
		{"ceph-authtool", "--create-keyring", c.path("osd", "keyring"), "--gen-key", "-n", "osd.0",
			"--cap", "mon", "allow profile osd", "--cap", "osd", "allow *"},
		{"ceph-authtool", "--create-keyring", all, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", all, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *"},
		{"ceph-authtool", all, "--gen-key", "-n", "client." + User,
			"--cap", "mon", "profile rbd", "--cap", "osd", "profile rbd pool=" + Pool},
		{"ceph-authtool", all, "--import-keyring", c.path("osd", "keyring")},
	}
}

func (c *Cluster) monitor() node.Component {
	return node.Component{
		Name: Monitor, Args: []string{"/usr/bin/ceph-mon", "-f", "-c", c.config(), "-i", "a"},
		Ready: func(ctx context.Context, _ *node.Node) error { return c.run(ctx, c.ceph("mon", "stat")) },
	}
}

func (c *Cluster) osd() node.Component {
	return node.Component{
		Name: OSD, Args: []string{"/usr/bin/ceph-osd", "-f", "-c", c.config(), "-i", "0"},
		Ready: func(ctx context.Context, _ *node.Node) error {
			text, err := c.output(ctx, "ceph", c.ceph("osd", "stat")[1:]...)
			if err == nil && !strings.Contains(text, "1 up") {
				err = fmt.Errorf("the OSD is not up: %s", text)
			}
			return err
		},
	}
}

// Address is where clients reach the monitor.
func (c *Cluster) Address() string { return c.address + port }

// Stop ends the daemons.
func (c *Cluster) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := c.node.Components()
	for _, s := range all {
		if (s.Name == OSD || s.Name == Monitor) && s.PID != 0 && !s.Ended {
			err = errors.Join(err, c.node.Kill(ctx, s.Name, syscall.SIGKILL))
		}
	}
	return err
}

// Import makes a raw image of a file in a format of qemu-img's.
func (c *Cluster) Import(ctx context.Context, image, format, path string) error {
	return c.run(ctx, []string{"qemu-img", "convert", "-f", format, "-O", "raw", path, c.Drive(image)})
}

// Drive is how QEMU's tools name an image. They become client.admin by a key that only root can read.
func (c *Cluster) Drive(image string) string {
	return "rbd:" + Pool + "/" + image + ":id=admin:conf=" + c.config()
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *Cluster) config() string { return c.path("ceph.conf") }

// ceph is a command for the monitor.
func (c *Cluster) ceph(args ...string) []string {
	return append([]string{"ceph", "-c", c.config(), "--connect-timeout", "10"}, args...)
}

// run runs commands in the node, up to the first that fails.
func (c *Cluster) run(ctx context.Context, commands ...[]string) error {
	for _, line := range commands {
		if _, err := c.output(ctx, line[0], line[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := c.node.Output(ctx, name, args...)
	return strings.TrimSpace(text), err
}
