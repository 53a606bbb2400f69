package images

import (
	"context"
	_ "embed"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
)

//go:embed pause/main.go
var pauseSource []byte

// Pause is the image of sandboxes.
func Pause(ctx context.Context, o guest.Options) (v1.Image, error) {
	program, err := Program(ctx, o, "pause", pauseSource)
	if err != nil {
		return nil, err
	}
	return FromFiles(v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, Layer{Files: []File{program}})
}
