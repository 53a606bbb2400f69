package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/images"
)

// contentSize is how much data the disks have that are expanded, virtualSize what their guests see,
// both in bytes.
const (
	contentSize = 512 << 20
	virtualSize = 4 << 30
)

// format is a way in which qemu-img stores a disk.
type format struct {
	name    string
	options []string
}

func formats() []format {
	return []format{
		{"plain", nil},
		{"zlib", []string{"-c"}},
		{"zstd", []string{"-c", "-o", "compression_type=zstd"}},
	}
}

// contentDisk makes a disk of size bytes with data that a compression halves, in even parts.
func (r *rig) contentDisk(ctx context.Context, f format, size int64) (path string, err error) {
	raw := filepath.Join(r.Dir(), "content.raw")
	if err := writeContent(raw, size); err != nil {
		return "", fmt.Errorf("make a disk with content: %w", err)
	}
	path = filepath.Join(r.Dir(), "content-"+f.name+".qcow2")
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2", "-W", "-m", "16"}, f.options...)
	if err := qemuImg(ctx, append(args, raw, path)...); err != nil {
		return "", err
	}
	return path, os.Remove(raw)
}

func writeContent(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	const chunk = 1 << 20
	random := rand.NewChaCha8([32]byte{})
	b := make([]byte, chunk)
	for i := range int64(contentSize / chunk) {
		for at := 0; at < chunk; at += 8192 {
			_, _ = random.Read(b[at : at+4096]) // never fails
			for j := at + 4096; j < at+8192; j++ {
				b[j] = 'x' // zeros would become holes
			}
		}
		if _, err := f.WriteAt(b, i*(size/contentSize)*chunk); err != nil {
			return err
		}
	}
	return f.Close()
}

func qemuImg(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// pushVariant makes an image of a disk that differs from others of it in its id alone, and has the
// node pull it.
func (r *rig) pushVariant(ctx context.Context, name, path string) (ref string, err error) {
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err == nil {
		img, err = images.Extend(img, v1.Config{Labels: map[string]string{"variant": name}})
	}
	if err != nil {
		return "", err
	}
	if ref, err = r.Push(ctx, name, img); err != nil {
		return "", err
	}
	return ref, r.pull(ctx, ref)
}
