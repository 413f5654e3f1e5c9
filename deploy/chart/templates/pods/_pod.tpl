{{/* What every pod has besides its containers. Takes a dict: root, component, account, token. */}}
{{- define "isrwatch.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ .token }}
# Nothing reads the variables that Kubernetes would add for each service of the namespace.
enableServiceLinks: false
terminationGracePeriodSeconds: 60
securityContext:
  {{- $context := deepCopy $values.podSecurityContext }}
  {{- if eq (include "isrwatch.is-openshift" .root) "true" }}
  {{- $context = omit $context "fsGroup" "runAsUser" "runAsGroup" }}
  {{- end }}
  {{- toYaml $context | nindent 2 }}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints: {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. Takes [root, component]. A change of its configuration replaces the pod; one of the chart
alone does not, so there is no label of a version. */}}
{{- define "isrwatch.pod-metadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "isrwatch.selector" . | nindent 2 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  isrwatch/configuration: {{ include "isrwatch.configuration" $root | sha256sum | trunc 16 }}
  {{- if $root.Values.secret.env }}
  isrwatch/secret: {{ $root.Values.secret.env | toJson | sha256sum | trunc 16 }}
  {{- end }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Where variables come from that are the same in every container; begins with a line break. */}}
{{- define "isrwatch.env-from" -}}
{{- $found := list -}}
{{- with .Values.secret.existing -}}
{{- $found = append $found (dict "secretRef" (dict "name" .)) -}}
{{- end -}}
{{- if .Values.secret.env -}}
{{- $found = append $found (dict "secretRef" (dict "name" (include "isrwatch.fullname" .))) -}}
{{- end -}}
{{- range .Values.extraEnvFrom -}}
{{- $found = append $found . -}}
{{- end -}}
{{- with $found }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Mounts of every container. Takes [root, name of the volume of its scratch files]. */}}
{{- define "isrwatch.mounts" -}}
{{- $root := index . 0 -}}
- {name: configuration, mountPath: /etc/isrwatch, readOnly: true}
- {name: {{ index . 1 }}, mountPath: /tmp}
{{- range include "isrwatch.secret-files" $root | fromJsonArray }}
- {name: {{ include "isrwatch.secret-volume" . }}, mountPath: /etc/isrwatch-secrets/{{ . }}, readOnly: true}
{{- end }}
{{- with $root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name of the volume of a secret: that of a secret may be longer, and have dots. */}}
{{- define "isrwatch.secret-volume" -}}
{{ printf "secret-%s-%s" (. | replace "." "-" | trunc 45 | trimSuffix "-") (sha256sum . | trunc 6) }}
{{- end -}}

{{/* Volumes of every pod. Takes [root, names of the volumes of scratch files]. */}}
{{- define "isrwatch.volumes" -}}
{{- $root := index . 0 -}}
- name: configuration
  configMap: {name: {{ include "isrwatch.fullname" $root }}}
{{- range index . 1 }}
- name: {{ . }}
  emptyDir: {sizeLimit: {{ $root.Values.scratchSize }}}
{{- end }}
{{- range include "isrwatch.secret-files" $root | fromJsonArray }}
- name: {{ include "isrwatch.secret-volume" . }}
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What is the same at the end of every container. Takes a dict: root, own (the values of the program). */}}
{{- define "isrwatch.container-end" -}}
resources: {{- toYaml .own.resources | nindent 2 }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Variables that a container has besides its own; begins with a line break. Takes a dict: root, own. */}}
{{- define "isrwatch.extra-env" -}}
{{- with concat .root.Values.extraEnv .own.extraEnv }}
{{ toYaml . }}
{{- end -}}
{{- end -}}
