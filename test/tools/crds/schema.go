package main

import apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// undescribed removes the descriptions from a schema. With those of two versions, a CRD
// would be too large for the annotation in which kubectl apply stores it.
func undescribed(s *apiext.JSONSchemaProps) {
	each(s, func(s *apiext.JSONSchemaProps) { s.Description = "" })
}

// keepUnknown makes the API server keep fields that a schema doesn't have. Otherwise it
// would drop them before admission sees them, and ignore a misspelt field silently.
func keepUnknown(s *apiext.JSONSchemaProps) {
	yes := true
	each(s, func(s *apiext.JSONSchemaProps) {
		if s.Type == "object" && s.AdditionalProperties == nil {
			s.XPreserveUnknownFields = &yes
		}
	})
}

// each calls f for a schema and all schemas in it.
func each(s *apiext.JSONSchemaProps, f func(*apiext.JSONSchemaProps)) {
	f(s)
	for name, property := range s.Properties {
		each(&property, f)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		each(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		each(s.AdditionalProperties.Schema, f)
	}
}
