{{/* Name of what belongs to the release: that of the release, if it has "isrwatch" in it. */}}
{{- define "isrwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "isrwatch" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-isrwatch" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected: they never change, for a StatefulSet refuses that. Takes [root, component]. */}}
{{- define "isrwatch.selector" -}}
app.kubernetes.io/name: isrwatch
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of every object. Takes [root, component]; "" is for what belongs to all components. */}}
{{- define "isrwatch.labels" -}}
{{- $root := index . 0 -}}
{{ include "isrwatch.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The image: the slim one, or with the suffix "-full" the one that also has Spark and Java. Takes [root, suffix]. */}}
{{- define "isrwatch.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- if index . 1 -}}
{{- if $image.fullDigest -}}
{{ $image.repository }}@{{ $image.fullDigest }}
{{- else -}}
{{ $image.repository }}:{{ $image.fullTag | default (printf "%s-full" ($image.tag | default $root.Chart.AppVersion)) }}
{{- end -}}
{{- else if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Name of the account of the pods that ask no API server. */}}
{{- define "isrwatch.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "isrwatch.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{/* "true" on OpenShift, which chooses users and groups itself. */}}
{{- define "isrwatch.is-openshift" -}}
{{- if eq (toString .Values.openshift) "auto" -}}
{{ .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- else -}}
{{ .Values.openshift }}
{{- end -}}
{{- end -}}
