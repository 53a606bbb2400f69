package image

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// registry is an image's own registry.
type registry struct {
	ref      name.Reference
	insecure bool
}

func newRegistry(full string, insecure bool) (registry, error) {
	ref, _, err := parse(full, insecure)
	return registry{ref, insecure}, err
}

func (registry) doing() string  { return "push" }
func (r registry) done() string { return "pushed to " + r.ref.Context().RegistryStr() }
func (registry) close()         {}

func (r registry) write(ctx context.Context, t target, bar *cli.Bar) error {
	updates := make(chan v1.Update, 16)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for u := range updates { // remote closes it
			bar.Set(u.Complete)
		}
	}()
	err := remote.Write(r.ref, t.img, append(r.options(ctx), remote.WithProgress(updates))...)
	<-told
	if err != nil {
		return fmt.Errorf("push %s: %w%s", t.name, err, r.advice(err))
	}
	return nil
}

// image fetches an image's manifest; the layers are fetched when they are read.
func (r registry) image(ctx context.Context) (v1.Image, error) {
	img, err := remote.Image(r.ref, append(r.options(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))...)
	if err != nil {
		return nil, fmt.Errorf("get %s from its registry: %w%s", r.ref, err, r.advice(err))
	}
	return img, nil
}

func (r registry) options(ctx context.Context) []remote.Option {
	o := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if t, ok := remote.DefaultTransport.(*http.Transport); ok && r.insecure {
		t = t.Clone()
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // --insecure asks for it
		o = append(o, remote.WithTransport(t))
	}
	return o
}
