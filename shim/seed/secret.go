package seed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxSecret is the largest Secret to read, in bytes. It is Kubernetes' limit.
const maxSecret = 1 << 20

// WithSecrets returns a layout's seed with the Secrets that the kubelet has mounted for
// it. Keys are KubeVirt's, in either of their forms.
func WithSecrets(l Layout, s vmspec.Seed) (vmspec.Seed, error) {
	var errs []error
	for _, part := range []struct {
		folder, key, other string
		to                 *string
	}{
		{s.UserDataFrom, "userdata", "userData", &s.UserData},
		{s.NetworkConfigFrom, "networkdata", "networkData", &s.NetworkConfig},
	} {
		if part.folder == "" {
			continue
		}
		content, err := readSecret(part.folder, part.key, part.other)
		*part.to, errs = content, append(errs, err)
	}
	var keys []string
	for _, secret := range s.KeysFrom {
		more, err := credential.Keys(secret)
		keys, errs = append(keys, more...), append(errs, err)
	}
	s, err := s.WithKeys(l.source, keys)
	return s, errors.Join(append(errs, err)...)
}

// readSecret reads the first key that exists. The files of a Secret are links within its folder.
func readSecret(folder string, keys ...string) (string, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", fmt.Errorf("cloud-init's Secret: %w", err)
	}
	defer root.Close()
	for _, key := range keys {
		f, err := root.Open(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cloud-init's Secret: %w", err)
		}
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		if err != nil {
			return "", fmt.Errorf("cloud-init's Secret: %w", err)
		}
		if len(content) > maxSecret {
			return "", fmt.Errorf("cloud-init's Secret: key %s has more than %d bytes", key, maxSecret)
		}
		return string(content), nil
	}
	return "", fmt.Errorf("cloud-init's Secret: it has no key %s", strings.Join(keys, " or "))
}
