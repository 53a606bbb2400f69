package imageunpack

import (
	"errors"
	"testing"
)

func TestCheckArtifact(t *testing.T) {
	for configType, image := range map[string]bool{
		"application/vnd.oci.image.config.v1+json": true, "application/vnd.docker.container.image.v1+json": true, "": true,
		"application/vnd.oci.empty.v1+json": false, "application/vnd.example.disk": false,
	} {
		if err := CheckArtifact(configType); (err == nil) != image || err != nil && !errors.Is(err, ErrArtifact) {
			t.Errorf("config of type %q: %v", configType, err)
		}
	}
}
