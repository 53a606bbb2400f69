package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/tools/go/packages"
	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

// api is one of KubeVirt's groups.
type api struct {
	types, group string
	// older is a version that is served too, with the same fields; "" for none.
	older string
	// status tells whether the group's objects have one.
	status bool
	kinds  []kind
}

// generate returns the CRD of each kind as decoded JSON.
func generate() ([]map[string]any, error) {
	var all []map[string]any
	for _, a := range apis() {
		of, err := a.generate()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.types, err)
		}
		all = append(all, of...)
	}
	return all, nil
}

func (a api) generate() ([]map[string]any, error) {
	roots, err := loader.LoadRoots(a.types)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	parser := &crd.Parser{
		Collector:                  &markers.Collector{Registry: &markers.Registry{}},
		Checker:                    &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
		AllowDangerousTypes:        true, // floats, in the KubeVirt object's type
		GenerateEmbeddedObjectMeta: false,
	}
	if err := (crd.Generator{}).RegisterMarkers(parser.Collector.Registry); err != nil {
		return nil, err
	}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	var all []map[string]any
	for _, k := range a.kinds {
		none := 0
		of := schema.GroupKind{Group: a.group, Kind: k.name}
		parser.NeedCRDFor(of, &none)
		made, ok := parser.CustomResourceDefinitions[of]
		if !ok {
			return nil, fmt.Errorf("there is no type %s", k.name)
		}
		if err := a.complete(k, &made); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		tree, err := decoded(made)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		all = append(all, tree)
	}
	// The loader leaves out what schemas don't need, so that types are incomplete.
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, errors.New("the types have errors")
	}
	return all, nil
}

// complete adds to a CRD what the types don't tell.
func (a api) complete(k kind, made *apiext.CustomResourceDefinition) error {
	crd.FixTopLevelMetadata(*made)
	made.Labels = map[string]string{"app.kubernetes.io/name": "nodevirt"}
	made.Spec.Names.ShortNames = k.shortNames
	if k.cluster {
		made.Spec.Scope = apiext.ClusterScoped
	} else {
		made.Spec.Names.Categories = []string{"all"}
	}
	made.Spec.Conversion = &apiext.CustomResourceConversion{Strategy: apiext.NoneConverter}
	if n := len(made.Spec.Versions); n != 1 {
		return fmt.Errorf("%d versions in the types; 1 is expected", n)
	}
	v := &made.Spec.Versions[0]
	v.Served, v.Storage = true, true
	v.AdditionalPrinterColumns = k.columns
	switch {
	case k.deprecated != "":
		v.Deprecated, v.DeprecationWarning = true, &k.deprecated
	case a.status:
		v.Subresources = &apiext.CustomResourceSubresources{Status: &apiext.CustomResourceSubresourceStatus{}, Scale: k.scale}
	}
	root := v.Schema.OpenAPIV3Schema
	undescribed(root)
	yes := true
	root.XPreserveUnknownFields = &yes
	spec := root.Properties["spec"]
	keepUnknown(&spec)
	root.Properties["spec"] = spec
	if a.older == "" {
		return nil
	}
	second := *v.DeepCopy()
	second.Name, second.Storage, second.Deprecated = a.older, false, true
	warning := fmt.Sprintf("%s/%s is deprecated; use %[1]s/%[3]s", a.group, a.older, v.Name)
	second.DeprecationWarning = &warning
	made.Spec.Versions = append(made.Spec.Versions, second)
	return nil
}

// decoded is a CRD without the fields that only an API server writes.
func decoded(made apiext.CustomResourceDefinition) (map[string]any, error) {
	text, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status")
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	return tree, nil
}

func plural(crd map[string]any) string {
	names := crd["spec"].(map[string]any)["names"].(map[string]any)
	return names["plural"].(string)
}
