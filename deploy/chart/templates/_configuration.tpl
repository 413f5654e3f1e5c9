{{/* A value as TOML. What JSON writes of a text is also a text of TOML; tables stand on one line. */}}
{{- define "isrwatch.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }},{{ end }} {{ $key | toJson }} = {{ include "isrwatch.toml" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $i, $each := . }}{{ if $i }}, {{ end }}{{ include "isrwatch.toml" $each }}{{ end }}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ . | toRawJson }}
{{- end -}}
{{- end -}}

{{/* A table of TOML and its keys. Takes [header, map]. */}}
{{- define "isrwatch.table" -}}
{{- $table := index . 1 -}}
{{ index . 0 }}
{{ range $key := keys $table | sortAlpha -}}
{{- $value := get $table $key -}}
{{- if not (kindIs "invalid" $value) -}}
{{ $key | toJson }} = {{ include "isrwatch.toml" $value }}
{{ end -}}
{{- end -}}
{{- end -}}

{{/* isrwatch.toml: the text that was given, or one made of clusters and settings. */}}
{{- define "isrwatch.configuration" -}}
{{- if .Values.configuration -}}
{{ .Values.configuration }}
{{- else -}}
{{- range include "isrwatch.strimzi-clusters" . | fromJsonArray }}
{{ include "isrwatch.table" (list "[[cluster]]" .) }}
{{- end }}
{{- range .Values.clusters }}
{{ include "isrwatch.table" (list "[[cluster]]" .) }}
{{- end }}
{{- $defaults := dict "tables" (dict "directory" "/data/tables") }}
{{- range $name, $section := mergeOverwrite $defaults (deepCopy .Values.settings) }}
{{ include "isrwatch.table" (list (printf "[%s]" $name) $section) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* A section of isrwatch.toml as JSON, from the text that was given or from settings. Takes [root, name]. */}}
{{- define "isrwatch.section" -}}
{{- $values := (index . 0).Values -}}
{{- $sections := $values.settings -}}
{{- if $values.configuration -}}
{{- $sections = $values.configuration | fromToml -}}
{{- end -}}
{{ get $sections (index . 1) | default dict | toJson }}
{{- end -}}

{{/* Clusters of Strimzi, as isrwatch.toml has them: their addresses, logins and certificates follow from names. */}}
{{- define "isrwatch.strimzi-clusters" -}}
{{- $found := list -}}
{{- range .Values.strimzi.clusters -}}
{{- $namespace := .namespace | default $.Release.Namespace -}}
{{- $client := dict "security.protocol" (ternary "SASL_SSL" "SASL_PLAINTEXT" (ne .tls false)) -}}
{{- $user := include "isrwatch.strimzi-user" (list $ .) -}}
{{- if eq (.authentication | default "scram-sha-512") "tls" -}}
{{- $_ := set $client "security.protocol" "SSL" -}}
{{- $_ := set $client "ssl.certificate.location" (printf "/etc/isrwatch-secrets/%s/user.crt" $user) -}}
{{- $_ := set $client "ssl.key.location" (printf "/etc/isrwatch-secrets/%s/user.key" $user) -}}
{{- else -}}
{{- $_ := set $client "sasl.mechanism" "SCRAM-SHA-512" -}}
{{- $_ := set $client "sasl.username" (.userName | default $user) -}}
{{- $_ := set $client "sasl.password" (printf "file:/etc/isrwatch-secrets/%s/password" $user) -}}
{{- end -}}
{{- if ne .tls false -}}
{{- $_ := set $client "ssl.ca.location" (printf "/etc/isrwatch-secrets/%s/ca.crt" (include "isrwatch.strimzi-ca" .)) -}}
{{- end -}}
{{- $servers := printf "%s-kafka-bootstrap.%s.svc:%.0f" .name $namespace (.port | default 9093 | float64) -}}
{{- $collect := dict "primary_source" "poll" -}}
{{- if .metrics -}}
{{- $_ := set $collect "broker_metrics" (dict "*" "http://{host}:9404/metrics") -}}
{{- end -}}
{{- $found = append $found (dict "name" (.displayName | default .name) "bootstrap_servers" $servers "platform" "strimzi" "client" $client "collect" $collect) -}}
{{- end -}}
{{ $found | toJson }}
{{- end -}}

{{/* Name of the KafkaUser of a cluster, and of the secret that the User Operator makes for it. Takes [root, cluster]. */}}
{{- define "isrwatch.strimzi-user" -}}
{{ (index . 1).userSecret | default (index . 1).userName | default (printf "%s-%s" (include "isrwatch.fullname" (index . 0)) (index . 1).name) }}
{{- end -}}

{{/* Name of the secret that has the certificate of a cluster's listeners. */}}
{{- define "isrwatch.strimzi-ca" -}}
{{ .caSecret | default (printf "%s-cluster-ca-cert" .name) }}
{{- end -}}

{{/* Names of the secrets that are mounted as files, as JSON. */}}
{{- define "isrwatch.secret-files" -}}
{{- $names := .Values.secretFiles -}}
{{- range .Values.strimzi.clusters -}}
{{- $names = append $names (include "isrwatch.strimzi-user" (list $ .)) -}}
{{- if ne .tls false -}}
{{- $names = append $names (include "isrwatch.strimzi-ca" .) -}}
{{- end -}}
{{- end -}}
{{ $names | uniq | toJson }}
{{- end -}}
