package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// TinyToRun returns the path of a disk as Tiny's whose guest has the guest agent, leaves port 80 to others, and
// finds programs on its disk: a script of the seed mounts it. Programs are the host's files by their names on
// the disk. The guest needs 112 MiB of memory beside what they use.
func TinyToRun(ctx context.Context, o Options, programs map[string]string) (path string, err error) {
	v := tinyVariant{
		name: "tiny-run", kernel: cloud, modules: agentModules,
		packages: agentPackages, programs: []string{agentProgram},
		files:  []entry{fileEntry("etc/flavour", nil)},
		onDisk: programs,
	}
	dir, err := tiny(ctx, o, v)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// contentOf is for the cache's key: the names and hashes of files.
func contentOf(files map[string]string) (key []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := os.Open(files[name])
		if err != nil {
			return nil, fmt.Errorf("read a program of the guest: %w", err)
		}
		defer f.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, f); err != nil {
			return nil, fmt.Errorf("read a program of the guest: %w", err)
		}
		key = append(key, name, hex.EncodeToString(hash.Sum(nil)))
	}
	return key, nil
}
