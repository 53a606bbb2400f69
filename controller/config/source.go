package config

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Source reads the configuration. The zero value has the defaults.
type Source struct {
	// Flags are what the controller's flags say.
	Flags Flags
	// Namespace is the controller's, which has the KubeVirt object; empty for a controller that knows none.
	Namespace string
	// Reader reads the object; nil for none.
	Reader client.Reader
}

// With returns a source that reads the object with another reader.
func (s Source) With(r client.Reader) Source {
	s.Reader = r
	return s
}

// Key returns the name of the object.
func (s Source) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: Name}
}

// Read returns the configuration as it is now. Without an object it is that of the flags.
func (s Source) Read(ctx context.Context) (Config, error) {
	c := Config{Flags: s.Flags}
	if s.Namespace != "" {
		c.Object = s.Key()
	}
	if s.Reader == nil || s.Namespace == "" {
		return c, nil
	}
	object := new(kubevirt.KubeVirt)
	switch err := s.Reader.Get(ctx, s.Key(), object); {
	case apierrors.IsNotFound(err): // which the API server also says before it knows the kind
		return c, nil
	case err != nil:
		return c, fmt.Errorf("read the configuration of KubeVirt %s: %w", s.Key(), err)
	}
	c.SkipsBackupHooks = object.Annotations[AnnotationSkipBackupHooks]
	c.Given, c.Updates = object.Spec.Configuration, object.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods
	return c, nil
}
