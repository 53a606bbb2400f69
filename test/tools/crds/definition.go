package main

import apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// definition is one entry of the input: the fields of a CRD except its schema, and the
// package of its types. Package controller/kind writes it.
type definition struct {
	Types   string
	Group   string
	Kind    string
	Older   string
	Details details
}

type details struct {
	ShortNames    []string
	Columns       []column
	ClusterScoped bool
	Status        bool
	Scale         *scale
	Deprecated    string
}

type column struct {
	Name, Type, JSONPath, Description string
	Priority                          int32
}

type scale struct {
	SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string
}

func (d details) columns() []apiext.CustomResourceColumnDefinition {
	var all []apiext.CustomResourceColumnDefinition
	for _, c := range d.Columns {
		all = append(all, apiext.CustomResourceColumnDefinition{
			Name: c.Name, Type: c.Type, JSONPath: c.JSONPath, Description: c.Description, Priority: c.Priority,
		})
	}
	return all
}

func (d details) scale() *apiext.CustomResourceSubresourceScale {
	if d.Scale == nil {
		return nil
	}
	return &apiext.CustomResourceSubresourceScale{
		SpecReplicasPath:   d.Scale.SpecReplicasPath,
		StatusReplicasPath: d.Scale.StatusReplicasPath,
		LabelSelectorPath:  &d.Scale.LabelSelectorPath,
	}
}
