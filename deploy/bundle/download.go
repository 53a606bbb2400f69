package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// aptHelper downloads as apt does: with the machine's proxies and certificates. It compares checksums.
const aptHelper = "/usr/lib/apt/apt-helper"

// download returns the packages' files in the folder cache, in the packages' order. It needs no network if all are there.
func download(ctx context.Context, a Archives, cache string, packages []Package) (_ []string, err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("download packages: %w", err)
	}
	dir, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return nil, fmt.Errorf("download packages: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files := make([]string, 0, len(packages))
	var missing []string
	args := []string{"-q", "-o", "APT::Sandbox::User=root", "download-file"}
	for _, p := range packages {
		name := p.SHA256 + ".deb"
		file := filepath.Join(cache, name)
		files = append(files, file)
		if verify(file, p.SHA256) != nil {
			missing = append(missing, name)
			args = append(args, a.address(p), filepath.Join(dir, name), "SHA256:"+p.SHA256)
		}
	}
	if len(missing) == 0 {
		return files, nil
	}
	if _, err := run(exec.CommandContext(ctx, aptHelper, args...)); err != nil {
		return nil, fmt.Errorf("download %d packages: %w; if the mirror no longer has a version, run make bundle-update, "+
			"or name a mirror that keeps old versions with -archive and -security-archive", len(missing), err)
	}
	for _, name := range missing {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(cache, name)); err != nil {
			return nil, fmt.Errorf("download packages: %w", err)
		}
	}
	for i, p := range packages {
		if err := verify(files[i], p.SHA256); err != nil {
			return nil, fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	return files, nil
}

// verify compares a file with its checksum.
func verify(file, sum string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("%s has the SHA-256 %s instead of %s", file, got, sum)
	}
	return nil
}
