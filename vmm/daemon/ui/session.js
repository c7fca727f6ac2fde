// Who uses the page: the key, and what it may do. Only this tab has the key, until it is closed.

const KEY = "hartline-key";

export const session = {
  /** The API key; null if nobody is signed in. */
  key: sessionStorage.getItem(KEY),
  /** The tenant of the key. */
  tenant: "",
  /** The rights of the key: `read`, `write` or `admin`. */
  scope: "read",
  /** The tenant that an administrator acts for; null: the key's own. */
  actsFor: null,

  /** Keeps a key. */
  keep(key) {
    this.key = key;
    sessionStorage.setItem(KEY, key);
  },

  /** Forgets the key. */
  end() {
    this.key = null;
    this.actsFor = null;
    sessionStorage.removeItem(KEY);
  },

  get isAdmin() {
    return this.scope === "admin";
  },

  get mayWrite() {
    return this.scope !== "read";
  },
};
