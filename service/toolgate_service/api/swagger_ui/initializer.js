// Reads only: requests are not sent from this page, so it never holds a credential.
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  supportedSubmitMethods: [],
  validatorUrl: null,
  // Without requests there is nothing to authorize.
  plugins: [() => ({ wrapComponents: { authorizeBtn: () => () => null, authorizeOperationBtn: () => () => null } })],
});
