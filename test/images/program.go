package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// Program is an executable file of a name, without a folder, which the go command builds from one
// source file and the standard library, and which is kept in the cache.
func Program(ctx context.Context, o guest.Options, name string, source []byte) (File, error) {
	key := cache.Key(runtime.Version(), string(source))
	dir, err := cache.Dir(ctx, o.CacheDir(), name, key, func(tmp string) error {
		return buildProgram(ctx, tmp, name, source)
	})
	return File{Name: name, Mode: 0o755, From: filepath.Join(dir, name)}, err
}

func buildProgram(ctx context.Context, dir, name string, source []byte) error {
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644); err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	cmd := deb.Command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", name, "main.go")
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=")
	_, err := deb.Run(cmd)
	return err
}
