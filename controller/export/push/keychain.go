package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/nodevirt/nodevirt/controller/export/server"
)

// The keys of the Secret: credentials as Kubernetes' type kubernetes.io/dockerconfigjson has them, and
// certificates in PEM that registries are trusted by.
const (
	fileCredentials = ".dockerconfigjson" //nolint:gosec // the key's name
	fileAuthority   = "ca.crt"
)

// keychain has credentials by the registries, or parts of them, that get them.
type keychain map[string]authn.AuthConfig

// readKeychain reads the Secret's credentials; without a Secret there are none.
func readKeychain(dir string) (keychain, error) {
	text, err := server.ReadFile(filepath.Join(dir, server.PushFolder, fileCredentials))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the push Secret: %w", err)
	}
	var config struct {
		Auths keychain `json:"auths"`
	}
	if json.Unmarshal(text, &config) != nil { // the error may quote it
		return nil, fmt.Errorf("decode %s of the push Secret: not what kubectl create secret docker-registry writes", fileCredentials)
	}
	return config.Auths, nil
}

// Resolve returns the credentials of the longest name that begins the repository's.
func (k keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	best, found := "", authn.Anonymous
	for key, config := range k {
		place := placeOf(key)
		if len(place) > len(best) && (of.String() == place || strings.HasPrefix(of.String(), place+"/")) {
			best, found = place, authn.FromConfig(config)
		}
	}
	return found, nil
}

// placeOf returns a key of the credentials without what docker writes around a registry's name, as in
// https://index.docker.io/v1/.
func placeOf(key string) string {
	_, place, is := strings.Cut(key, "://")
	if !is {
		place = key
	}
	place = strings.TrimSuffix(place, "/")
	for _, version := range []string{"/v1", "/v2"} {
		place = strings.TrimSuffix(place, version)
	}
	if place == "docker.io" || strings.HasPrefix(place, "docker.io/") {
		place = "index." + place
	}
	return place
}
