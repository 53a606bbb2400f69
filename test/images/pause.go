package images

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

//go:embed pause/main.go
var pauseSource []byte

// Pause is the image of sandboxes. Its program is built with the go command and kept in the cache.
func Pause(ctx context.Context, o guest.Options) (v1.Image, error) {
	key := cache.Key(runtime.Version(), string(pauseSource))
	dir, err := cache.Dir(ctx, o.CacheDir(), "pause", key, func(tmp string) error {
		return buildPause(ctx, tmp)
	})
	if err != nil {
		return nil, err
	}
	file := File{Name: "pause", Mode: 0o755, From: filepath.Join(dir, "pause")}
	return FromFiles(v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, Layer{Files: []File{file}})
}

func buildPause(ctx context.Context, dir string) error {
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, pauseSource, 0o644); err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	cmd := deb.Command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", "pause", "main.go")
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOWORK=off", "GOFLAGS=")
	_, err := deb.Run(cmd)
	return err
}
