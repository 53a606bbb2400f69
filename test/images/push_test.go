package images_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node/registry"
)

// TestPushLarge: a layer of at least PushOptions.Large bytes comes in one request, a smaller one in pieces.
func TestPushLarge(t *testing.T) {
	for large, pieces := range map[int64]int{1 << 10: 1, 1 << 20: 3} {
		h, err := registry.Handler(t.TempDir())
		assert.NilError(t, err)
		got := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				got++
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		img, err := random.Image(4<<10, 2)
		assert.NilError(t, err)
		ref := server.Listener.Addr().String() + "/large:1"
		_, err = images.Push(t.Context(), ref, img, images.PushOptions{Large: large})
		assert.NilError(t, err)
		assert.Equal(t, got, pieces, "of layers from %d bytes", large) // the config is small

		to, err := name.ParseReference(ref, name.Insecure)
		assert.NilError(t, err)
		pulled, err := remote.Image(to)
		assert.NilError(t, err)
		assert.NilError(t, validate.Image(pulled))
	}
}
