//go:build upgrade

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// variable names the folder of the older version, which the script "older" makes.
const variable = "UPGRADE_FROM"

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	image      string // a guest with an agent as /disk
	old, today version
	bin        string // the programs of the nodes, which place changes
}

// version is what one version of nodevirt installs.
type version struct {
	name string
	bin  string // with its programs, and image/nodevirt-controller
	yaml string // its deploy/
}

// programs are those that the nodes' package places.
var programs = []string{"nodevirt", "nodevirt-qemu", "nodevirt-shim", "nodevirt-view"}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	older := os.Getenv(variable)
	if older == "" {
		return 1, errors.New("run `make test-upgrade`, which sets " + variable)
	}
	built, err := node.CheckoutBin()
	if err != nil {
		return 1, err
	}
	suite.old = version{"old", filepath.Join(older, "bin"), filepath.Join(older, "deploy")}
	suite.today = version{"today", built, filepath.Join(filepath.Dir(built), "deploy")}
	// On the file system of bin/, so that tools need not be copied.
	if suite.bin, err = os.MkdirTemp(built, "upgrade-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(suite.bin)) }()
	if err := link(built, suite.bin); err != nil {
		return 1, err
	}
	if err := suite.old.place(); err != nil {
		return 1, err
	}
	return cluster.Main(m, cluster.Options{Nodes: 2, Bin: suite.bin}, prepare), nil
}

// link makes hard links to the files of bin/, one folder deep, so that a node's programs can change without
// those of the checkout.
func link(from, to string) error {
	if err := os.Chmod(to, 0o755); err != nil {
		return fmt.Errorf("make the nodes' programs: %w", err)
	}
	for _, pattern := range []string{"*", "kube/*"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, path := range files {
			name, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			info, err := os.Stat(path)
			if err != nil {
				return fmt.Errorf("make the nodes' programs: %w", err)
			}
			if !info.Mode().IsRegular() {
				continue
			}
			target := filepath.Join(to, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.Link(path, target)); err != nil {
				return fmt.Errorf("make the nodes' programs: %w", err)
			}
		}
	}
	return nil
}

// place puts the version's programs in the place of those that the nodes have, as a package does: what runs
// keeps its file.
func (v version) place() error {
	for _, name := range programs {
		data, err := os.ReadFile(filepath.Join(v.bin, name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is not built: %w", v.name, err)
		}
		if err != nil {
			return err
		}
		target := filepath.Join(suite.bin, name)
		if err := os.WriteFile(target+".new", data, 0o755); err != nil {
			return fmt.Errorf("place a program: %w", err)
		}
		if err := os.Rename(target+".new", target); err != nil {
			return fmt.Errorf("place a program: %w", err)
		}
	}
	return nil
}

// release is the version's part for clusters: CRDs, rights and the controller.
func (v version) release() cluster.Release {
	return cluster.Release{
		Controller: filepath.Join(v.bin, "image", "nodevirt-controller"), Manifests: v.yaml, Tag: v.name,
	}
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	suite.image, err = clustertest.PushDisk(ctx, c, "agent:1", guest.TinyWithAgent)
	return err
}
